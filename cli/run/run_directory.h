// The state of the local runs of a job between two invocations of `oarlock run`: the directory <workdir>/<job>/ with
// checkpoints/, run.json and a lock file; and the commands that `oarlock run` suggests when a run ends, to continue it
// or to train longer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"

namespace oarlock::run {

class RunDirectory {
 public:
  // Creates the directory, or opens that of earlier runs, and locks it for the lifetime of this object. Fails with
  // kUnavailable if another run of this job holds the lock. With `fresh`, the directory of an earlier run is first
  // renamed, with the current time in its new name.
  static Result<RunDirectory> open(const std::filesystem::path& workdir, const std::string& job, bool fresh,
                                   const Clock& clock);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  // Returns the highest step of a directory checkpoints/step-STEP, as oarlock-trainer names them.
  std::optional<int64_t> newest_checkpoint() const;
  const std::optional<std::filesystem::path>& moved_to() const { return moved_to_; }

  // The counterparts of metadata.uid and status.attempt in a cluster, which together fence the checkpoints. All runs in
  // this directory have the same uid; the attempt number increases.
  const std::string& uid() const { return uid_; }
  bool is_first_attempt() const { return attempts_ == 0; }
  // Returns the number of the next attempt, after writing it to the disk.
  Result<int> begin_attempt();

 private:
  RunDirectory() = default;

  std::filesystem::path path_;
  std::optional<std::filesystem::path> moved_to_;
  FileDescriptor lock_;
  std::string uid_;
  int attempts_ = 0;
};

// ---- Commands that continue a run --------------------------------------------------------------------------------

// The options of a run that a command repeats to continue it.
struct RunCommand {
  std::string file;  // "-" for standard input
  std::string name{};
  std::string workdir{};  // empty: the default
  std::optional<int> nodes{};
  std::optional<int> nproc{};
  std::vector<std::string> settings{};
};

// Returns the command line, quoted for a shell. Pure.
std::string command_line(const RunCommand& command);

// Returns the command that trains twice as long as spec.trainer (JSON) and the settings specify; nullopt if they do not
// specify a length. Pure.
std::optional<std::string> longer_command(const RunCommand& command, const std::string& trainer);

}  // namespace oarlock::run
