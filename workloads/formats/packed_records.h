// A file format of Oarlock for many short records: 60 million records of 300 bytes take 18 GB on disk.
//
//   STEM.bytes  the bytes of the records, concatenated
//   STEM.index  "oarpack1", the number of records and the number of bytes, both uint64; then, for every 16 records, the
//               offset of the first one in STEM.bytes as uint64 and the 16 lengths as uint16 (0 after the last record)
//
// All numbers are little-endian. The index takes 2.5 bytes per record. Both files are memory-mapped for reading, so
// that only recently used pages occupy memory. The files of a writer that did not finish cannot be opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

// Provides random access to the records. Thread-safe.
class PackedRecords {
 public:
  static constexpr int64_t kMaxLength = 65535;  // bytes of a record

  // Opens STEM.bytes and STEM.index. Returns kNoInput if they do not exist, and kDataErr if they are damaged or have
  // another format.
  static Result<PackedRecords> open(const std::filesystem::path& stem);

  int64_t size() const { return size_; }  // records

  // `record` must be in [0, size()). The span is valid as long as this object exists.
  int64_t length(int64_t record) const;
  std::span<const uint8_t> operator[](int64_t record) const;

 private:
  PackedRecords(MappedFile bytes, MappedFile index, int64_t size)
      : bytes_(std::move(bytes)), index_(std::move(index)), size_(size) {}

  MappedFile bytes_;
  MappedFile index_;
  int64_t size_;
};

// Writes the two files in constant memory.
class PackedRecordsWriter {
 public:
  // Creates or replaces STEM.bytes and STEM.index. Returns kCantCreate or a similar code if that fails.
  static Result<PackedRecordsWriter> create(const std::filesystem::path& stem);

  // Appends a record of 1 to kMaxLength bytes. Returns kIoErr if a write failed, for example because the disk is full;
  // writes are buffered, so that a later call may report it.
  Result<void> add(std::span<const uint8_t> record);
  int64_t size() const { return records_; }

  // Completes the files and syncs them to disk. Fails as add().
  Result<void> finish();

 private:
  explicit PackedRecordsWriter(std::filesystem::path stem) : stem_(std::move(stem)) {}

  tl::unexpected<Error> write_error() const;

  std::filesystem::path stem_;
  std::ofstream bytes_;
  std::ofstream index_;
  int64_t records_ = 0;
  int64_t written_ = 0;  // bytes
};

}  // namespace oarlock
