// The folder of a job's local runs: <workdir>/<job>/ with checkpoints/, run.json and a lock.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "common/file_descriptor.h"

namespace oarlock::run {

class RunFolder {
 public:
  // Makes the folder, or takes up the one of earlier runs, and keeps others out of it as long as this object lives:
  // kUnavailable when a run of this job goes on. With `fresh`, an earlier run's folder is first moved aside, to a name
  // with the time in it.
  static Result<RunFolder> open(const std::filesystem::path& workdir, const std::string& job, bool fresh,
                                const Clock& clock);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  const std::optional<std::filesystem::path>& moved_to() const { return moved_to_; }

  // As metadata.uid and status.attempt in the cluster: the same uid for all runs in this folder, attempts that only
  // grow. Together they fence the checkpoints.
  const std::string& uid() const { return uid_; }
  bool is_first_attempt() const { return attempts_ == 0; }
  Result<int> begin_attempt();  // its number; it is on the disk before it is returned

 private:
  RunFolder() = default;

  std::filesystem::path path_;
  std::optional<std::filesystem::path> moved_to_;
  FileDescriptor lock_;
  std::string uid_;
  int attempts_ = 0;
};

}  // namespace oarlock::run
