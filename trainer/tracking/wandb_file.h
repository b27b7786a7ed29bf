// The file of a Weights & Biases run, "run-<id>.wandb", which `wandb sync` uploads: the messages `Record` of
// wandb/proto/wandb_internal.proto in the format of leveldb's log. The messages are those that wandb 0.31 writes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "trainer/tracking/run_files.h"

namespace oarlock {

// ---- the log -------------------------------------------------------------------------------------------------------

// The first bytes of a file.
std::string wandb_header();

// Returns the bytes of a record that begins at an offset of the file: padding and fragments in blocks of 32 KiB.
std::string frame_wandb_record(std::string_view record, size_t offset);

// Where the complete records of a file end.
struct WandbLogEnd {
  bool has_header = false;  // of such a file
  size_t records = 0;       // complete ones
  size_t offset = 0;        // after the last of them; 0 without a header
  bool is_cut = false;      // the file ends inside of a record, or before the first one is complete
};

// Calls `visit` with each complete record of a file. Stops at the first damaged or incomplete record, such as the last
// one of a process that was killed.
WandbLogEnd read_wandb_log(const ByteSource& read, const std::function<void(std::string_view record)>& visit);

// ---- the records ---------------------------------------------------------------------------------------------------

// Values by their keys, as JSON texts, in which NaN, Infinity and -Infinity are numbers.
using WandbItems = std::vector<std::pair<std::string, std::string>>;

std::string wandb_json(double value);

struct WandbRun {
  std::string id;
  std::string entity;
  std::string project;
  std::string group;
  std::string job_type;
  std::string name;
  std::string notes;
  std::vector<std::string> tags;
  std::string host;
  std::string commit;  // of git; may be empty
  SystemTime start_time;
  WandbItems config;
};

// A file of the run's directory "files", which `wandb sync` uploads.
enum class WandbFileType { kOther = 0, kWandb = 1, kMedia = 2 };

// Returns serialized records. Bytes that are not UTF-8 are replaced.
class WandbRecords {
 public:
  explicit WandbRecords(std::string run_id) : run_id_(std::move(run_id)) {}

  std::string version(const std::string& producer) const;
  std::string run(const WandbRun& run) const;
  std::string environment(const WandbRun& run, const std::string& program, int cpus) const;
  // One row of the history. The step is also among the items, as "_step".
  std::string history(int64_t step, const WandbItems& items) const;
  std::string summary(const WandbItems& items) const;
  std::string file(const std::string& path, WandbFileType type) const;
  // Announces that the run was interrupted and continues later.
  std::string preempting() const;
  std::string exit(int code, int64_t seconds) const;

 private:
  const std::string run_id_;
};

// Returns the record with its number in the file. The records of a file are numbered from 1.
std::string number_wandb_record(int64_t number, std::string_view record);

// ---- reading back --------------------------------------------------------------------------------------------------

// The points in the files of earlier attempts.
struct WandbPoint {
  int64_t step = 0;
  std::string value_json;
  bool operator==(const WandbPoint&) const = default;
};
struct WandbContents {
  std::string run_id;
  std::map<std::string, WandbPoint> newest;  // the point with the highest step of each key in the history
};

// Adds the records of a file to `contents`. A record that cannot be parsed ends the file, and nothing is returned.
std::optional<WandbLogEnd> read_wandb_contents(const ByteSource& read, WandbContents& contents);

}  // namespace oarlock
