#include "trainer/tracking/folder_claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>

#include "common/json_access.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

struct FolderOwner {
  std::string process;
  std::string uid;
  int attempt = 0;
};

// Returns nothing if the file does not exist, cannot be read or is damaged.
std::optional<FolderOwner> read_owner(const std::filesystem::path& path) {
  const Result<std::string> text = read_file(path, 4096);
  if (!text) return std::nullopt;
  const nlohmann::json value = nlohmann::json::parse(*text, nullptr, false);
  FolderOwner out{
      .process = text_at(value, "process"), .uid = text_at(value, "uid"), .attempt = integer_at(value, "attempt", 0)};
  return out.process.empty() ? std::nullopt : std::optional(std::move(out));
}

std::string random_process_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

FolderClaim::FolderClaim(std::filesystem::path folder, std::string uid, int attempt)
    : folder_(std::move(folder)), uid_(std::move(uid)), attempt_(attempt), process_(random_process_name()) {}

Result<void> FolderClaim::claim() {
  RETURN_IF_ERROR(make_writable_folder(folder_));
  const std::optional<FolderOwner> owner = read_owner(owner_path());
  if (owner && owner->uid == uid_ && owner->attempt > attempt_)
    return fail(ExitCode::kTempFail,
                fmt::format("{}: attempt {} of the job has claimed the folder", folder_.string(), owner->attempt));
  const nlohmann::json value = {{"process", process_}, {"uid", uid_}, {"attempt", attempt_}};
  RETURN_IF_ERROR(write_file_atomically(owner_path(), value.dump() + "\n"));
  has_claimed_ = true;
  return {};
}

bool FolderClaim::try_lock() {
  if (!lock_file_.open())
    lock_file_ = FileDescriptor(::open((folder_ / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock_file_.open()) return true;
  while (::flock(lock_file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return true;  // such as ENOLCK
  }
  return true;
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
