#include "cli/run/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Result<FileDescriptor> lock(const fs::path& folder, const std::string& job) {
  FileDescriptor file(::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: cannot be created", (folder / "lock").string()));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(ExitCode::kUnavailable,
                fmt::format("a run of '{}' is in progress in {}; wait for it, stop it, or choose another --workdir",
                            job, folder.string()));
  }
  return file;
}

Result<std::string> new_uid() {
  Result<std::string> uid = read_file("/proc/sys/kernel/random/uuid");
  if (uid) uid->erase(std::remove(uid->begin(), uid->end(), '\n'), uid->end());
  return uid;
}

fs::path unused_name(const fs::path& folder, SystemTime now) {
  std::string time = to_rfc3339(now);
  std::erase(time, ':');
  fs::path target = folder.string() + "." + time;
  for (int i = 2; fs::exists(target); ++i) target = fmt::format("{}.{}-{}", folder.string(), time, i);
  return target;
}

}  // namespace

Result<RunFolder> RunFolder::open(const fs::path& workdir, const std::string& job, bool fresh, const Clock& clock) {
  RunFolder run;
  std::error_code error;
  const fs::path absolute = fs::absolute(workdir, error);
  if (error) return fail(ExitCode::kCantCreate, fmt::format("{}: {}", workdir.string(), error.message()));
  run.path_ = (absolute / job).lexically_normal();
  const auto make_and_lock = [&]() -> Result<void> {
    RETURN_IF_ERROR(make_writable_folder(run.path_));
    ASSIGN_OR_RETURN(run.lock_, lock(run.path_, job));
    return {};
  };
  RETURN_IF_ERROR(make_and_lock());
  if (fresh && fs::exists(run.path_ / "run.json")) {
    run.moved_to_ = unused_name(run.path_, clock.now());
    fs::rename(run.path_, *run.moved_to_, error);  // the lock moves along, and is held until the new folder is locked
    if (error)
      return fail(ExitCode::kCantCreate, fmt::format("{} cannot be moved to {}: {}", run.path_.string(),
                                                     run.moved_to_->string(), error.message()));
    RETURN_IF_ERROR(make_and_lock());
  }

  const fs::path state = run.path_ / "run.json";
  if (fs::exists(state)) {
    ASSIGN_OR_RETURN(const std::string text, read_file(state));
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("uid") || !json["uid"].is_string() || !json.contains("attempts") ||
        !json["attempts"].is_number_integer()) {
      return fail(ExitCode::kDataErr, fmt::format("{}: damaged; start over with --fresh, which renames {}",
                                                  state.string(), run.path_.string()));
    }
    run.uid_ = json["uid"];
    run.attempts_ = json["attempts"];
    return run;
  }
  ASSIGN_OR_RETURN(run.uid_, new_uid());
  return run;
}

Result<int> RunFolder::begin_attempt() {
  const Json json = {{"uid", uid_}, {"attempts", attempts_ + 1}};
  RETURN_IF_ERROR(write_file_atomically(path_ / "run.json", json.dump() + "\n"));
  return attempts_++;
}

}  // namespace oarlock::run
