#include "trainer/tracking/folder_claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/json_access.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/tracking/run_files.h"

namespace oarlock {
namespace {

constexpr size_t kMaxOwnerBytes = 4096;

struct FolderOwner {
  std::string process;
  std::string machine;
  std::string uid;
  int attempt = 0;
};

// Returns nothing if the file does not exist, cannot be read or is damaged.
std::optional<FolderOwner> read_owner(const std::filesystem::path& path) {
  const Result<std::string> text = read_regular_file(path, kMaxOwnerBytes);
  if (!text) return std::nullopt;
  const nlohmann::json value = parse_untrusted_json(*text, kMaxOwnerBytes);
  FolderOwner out{.process = text_at(value, "process"),
                  .machine = text_at(value, "machine"),
                  .uid = text_at(value, "uid"),
                  .attempt = integer_at(value, "attempt", 0)};
  return out.process.empty() ? std::nullopt : std::optional(std::move(out));
}

// The containers of a node have the same.
std::string boot_id() {
  const Result<std::string> text = read_file("/proc/sys/kernel/random/boot_id", 64);
  return text ? std::string(trim(*text)) : "";
}

}  // namespace

FolderClaim::FolderClaim(std::filesystem::path folder, std::string_view uid, int attempt)
    : folder_(std::move(folder)),
      uid_(replace_invalid_utf8(uid)),
      attempt_(attempt),
      process_(random_hex(sizeof(uint64_t))) {}

Result<void> FolderClaim::claim() {
  RETURN_IF_ERROR(make_writable_folder(folder_));
  machine_ = boot_id();
  struct stat status = {};
  // Two FUSE mounts of a volume on one node do not share their locks, and have different devices.
  if (!machine_.empty() && ::stat(folder_.c_str(), &status) == 0) machine_ += fmt::format(":{}", status.st_dev);
  const std::optional<FolderOwner> owner = read_owner(owner_path());
  if (owner && owner->uid == uid_ && owner->attempt > attempt_)
    return fail(ExitCode::kTempFail,
                fmt::format("{}: attempt {} of the job has claimed the folder", folder_.string(), owner->attempt));
  const nlohmann::json value = {{"process", process_}, {"machine", machine_}, {"uid", uid_}, {"attempt", attempt_}};
  RETURN_IF_ERROR(write_file_atomically(owner_path(), dump_json(value) + "\n"));
  const bool is_elsewhere = owner && (machine_.empty() || owner->machine != machine_);
  if (!std::exchange(has_claimed_, true) && is_elsewhere) hidden_writer_ = owner->process;
  return {};
}

bool FolderClaim::try_lock() {
  const std::filesystem::path path = folder_ / ".lock";
  if (!lock_file_.open()) {
    Result<FileDescriptor> file = open_regular_file(path, O_RDWR | O_CREAT);
    if (!file) file = open_regular_file(path, O_RDONLY);  // of another user; NFS gives no lock on it then
    if (!file) return true;
    lock_file_ = std::move(*file);
  }
  while (::flock(lock_file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return true;  // such as ENOLCK
  }
  return true;
}

bool FolderClaim::may_have_hidden_writer() const {
  if (hidden_writer_.empty()) return false;
  const std::optional<FolderOwner> released = read_owner(released_path());
  return !released || released->process != hidden_writer_;
}

// A process that has not begun to write does not know whether the one before it has ended.
void FolderClaim::release() {
  if (std::exchange(has_begun_, false)) {
    const nlohmann::json value = {{"process", process_}};
    // Without the file, another machine waits longer.
    static_cast<void>(write_file_atomically(released_path(), value.dump() + "\n"));
  }
  lock_file_.close();
}

bool FolderClaim::is_superseded() {
  const std::optional<FolderOwner> owner = read_owner(owner_path());
  if (!owner || owner->process == process_) return false;
  // Before its own claim, this process is the later one; claim() knows the exception.
  if (has_claimed_ && (owner->uid != uid_ || owner->attempt >= attempt_)) return true;
  const Result<void> claimed = claim();
  return !claimed && claimed.error().code == ExitCode::kTempFail;
}

}  // namespace oarlock
