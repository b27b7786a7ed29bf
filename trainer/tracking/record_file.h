// A file of appended records, for readers that stop at an incomplete record, as those of TensorBoard and W&B do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "common/log.h"

namespace oarlock {

// The format of a sink's files. RecordFile::flush() calls the functions.
struct RecordFormat {
  // Returns the path of a new file, in a directory that exists. Called for the first records, and again if a failure
  // left no file that can be continued.
  std::function<Result<std::filesystem::path>()> new_path;
  // The name of a new file has this suffix until it has its first records; empty: none.
  std::string new_suffix{};
  std::string header;  // the first bytes of each file
  // Returns the records that each file begins with.
  std::function<std::vector<std::string>()> first_records;
  // Returns the bytes of a record that begins at an offset in the file. `number` counts the records of the file from 1.
  std::function<std::string(std::string_view record, size_t offset, int64_t number)> frame;
  // Whether this process may still write the file; empty: always. Called after the file was opened and before each
  // write. If it returns false, all queued records are discarded.
  std::function<bool()> may_write{};
};

// Replaces a file of at most `max_bytes` by a copy of it, so that a process that has it open no longer changes the file
// with this name. Does nothing if the file does not exist or is longer.
Result<void> replace_by_copy(const std::filesystem::path& path, uint64_t max_bytes);

// Limit for replace_by_copy() of the files of an earlier process.
inline constexpr uint64_t kMaxFencedBytes = uint64_t{256} << 20;

// Thread-compatible.
class RecordFile {
 public:
  // Limit of the memory for records that cannot be written. Essential records, a few in each attempt, are not counted.
  static constexpr size_t kMaxWaitingBytes = size_t{1} << 20;

  enum class Importance { kNormal, kEssential };

  // `name` is the name of the sink, for messages.
  RecordFile(RecordFormat format, const Logger& logger, std::string name)
      : format_(std::move(format)), logger_(logger), name_(std::move(name)) {}
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Logs a warning if records have not been written.
  ~RecordFile();

  // Queues a record for flush().
  void add(std::string record, Importance importance = Importance::kNormal);

  // Writes the queued records with one call of write(2), so that a process that is killed leaves complete records. If
  // the write fails, for example because the disk is full, the file is truncated to its previous size, and the records
  // remain queued for the next call; records beyond kMaxWaitingBytes that are not essential are dropped, with a warning
  // the first time. A new file without a record is removed. After RecordFormat::may_write returned false, it succeeds
  // without an effect.
  Result<void> flush();

  // Makes the written records survive a failure of the node: fdatasync(2), and for a new file also an fsync(2) of its
  // directory. Does nothing without new records.
  Result<void> sync();

  // Whether a file is open to which flush() appends.
  bool is_open() const { return file_.open(); }

 private:
  struct WaitingRecord {
    std::string data;
    Importance importance;
  };

  Result<void> write_waiting();
  Result<void> open_next();
  void remove_partial_record();
  void limit_waiting();

  const RecordFormat format_;
  const Logger logger_;
  const std::string name_;
  std::filesystem::path path_;  // of the last file, with the suffix of a new one
  FileDescriptor file_;
  size_t size_ = 0;    // of the file, which has complete records only
  int64_t count_ = 0;  // of its records
  bool is_synced_ = true;
  bool is_directory_synced_ = true;
  std::vector<WaitingRecord> waiting_;
  bool has_dropped_ = false;
};

}  // namespace oarlock
