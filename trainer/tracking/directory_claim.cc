#include "trainer/tracking/directory_claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/file_lock.h"
#include "common/json_access.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/temporary_files.h"
#include "common/text.h"
#include "trainer/tracking/run_files.h"

namespace oarlock {
namespace {

constexpr size_t kMaxOwnerBytes = 4096;

struct DirectoryOwner {
  std::string process;
  std::string machine;
  std::string uid;
  int attempt = 0;
};

std::optional<DirectoryOwner> parse_owner(std::string_view text) {
  const nlohmann::json value = parse_untrusted_json(text, kMaxOwnerBytes);
  DirectoryOwner out{.process = text_at(value, "process"),
                     .machine = text_at(value, "machine"),
                     .uid = text_at(value, "uid"),
                     .attempt = integer_at(value, "attempt", 0)};
  return out.process.empty() ? std::nullopt : std::optional(std::move(out));
}

// Returns nothing if the file does not exist, cannot be read or is damaged.
std::optional<DirectoryOwner> read_owner(const std::filesystem::path& path) {
  const Result<std::string> text = read_regular_file(path, kMaxOwnerBytes);
  return text ? parse_owner(*text) : std::nullopt;
}

// The first bytes of an open file; empty if it cannot be read.
std::string content_of(const FileDescriptor& file) {
  std::string out(kMaxOwnerBytes, '\0');
  const ssize_t got = ::pread(file.get(), out.data(), out.size(), 0);
  out.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return out;
}

// The containers of a node have the same.
std::string boot_id() {
  const Result<std::string> text = read_file("/proc/sys/kernel/random/boot_id", 64);
  return text ? std::string(trim(*text)) : "";
}

}  // namespace

DirectoryClaim::DirectoryClaim(std::filesystem::path directory, std::string_view uid, int attempt)
    : directory_(std::move(directory)),
      uid_(replace_invalid_utf8(uid)),
      attempt_(attempt),
      process_(random_hex(sizeof(uint64_t))) {}

Result<void> DirectoryClaim::claim() {
  const Result<void> claimed = try_claim();
  if (claimed || claimed.error().code == ExitCode::kTempFail) return claimed;
  // Perhaps another process called begin() meanwhile, which removed the temporary file of this claim.
  return try_claim();
}

Result<void> DirectoryClaim::try_claim() {
  RETURN_IF_ERROR(make_writable_directory(directory_));
  machine_ = boot_id();
  struct stat status = {};
  // Two FUSE mounts of a volume on one node do not share their locks, and have different devices.
  if (!machine_.empty() && ::stat(directory_.c_str(), &status) == 0) machine_ += fmt::format(":{}", status.st_dev);
  const std::optional<DirectoryOwner> owner = read_owner(owner_path());
  if (owner && owner->uid == uid_ && owner->attempt > attempt_)
    return fail(ExitCode::kTempFail, fmt::format("{}: attempt {} of the job has claimed the directory",
                                                 directory_.string(), owner->attempt));
  const nlohmann::json value = {{"process", process_}, {"machine", machine_}, {"uid", uid_}, {"attempt", attempt_}};
  RETURN_IF_ERROR(write_file_atomically(owner_path(), dump_json(value) + "\n"));
  const bool is_elsewhere = owner && (machine_.empty() || owner->machine != machine_);
  if (!std::exchange(has_claimed_, true) && is_elsewhere) hidden_writer_ = owner->process;
  return {};
}

bool DirectoryClaim::try_lock() {
  const std::filesystem::path path = directory_ / ".lock";
  if (!lock_file_.open()) {
    Result<FileDescriptor> file = open_regular_file(path, O_RDWR | O_CREAT);
    if (!file) file = open_regular_file(path, O_RDONLY);  // of another user; NFS gives no lock on it then
    if (!file) return true;
    lock_file_ = std::move(*file);
  }
  const Result<LockOutcome> outcome = oarlock::try_lock(lock_file_.get(), LockMode::kExclusive, path);
  return !outcome || *outcome != LockOutcome::kLockedByOther;
}

bool DirectoryClaim::may_have_hidden_writer() const {
  if (hidden_writer_.empty()) return false;
  const std::optional<DirectoryOwner> released = read_owner(released_path());
  return !released || released->process != hidden_writer_;
}

bool DirectoryClaim::has_later_attempt_begun() const {
  const std::optional<DirectoryOwner> begun = parse_owner(content_of(lock_file_));
  return begun && begun->uid == uid_ && begun->attempt > attempt_;
}

void DirectoryClaim::begin() {
  has_begun_ = true;
  std::error_code ignored;
  for (const std::filesystem::path& path : temporary_files(directory_)) std::filesystem::remove(path, ignored);
  const nlohmann::json value = {{"process", process_}, {"uid", uid_}, {"attempt", attempt_}};
  const std::string text = dump_json(value) + "\n";
  // The lock file of another user is open for reading only. The end of a longer text is not JSON, and is cut next.
  if (::pwrite(lock_file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()))
    static_cast<void>(::ftruncate(lock_file_.get(), static_cast<off_t>(text.size())));
}

// A process that has not begun to write does not know whether the one before it has ended.
void DirectoryClaim::release() {
  if (std::exchange(has_begun_, false)) {
    const nlohmann::json value = {{"process", process_}};
    // Without the file, another machine waits longer.
    static_cast<void>(write_file_atomically(released_path(), value.dump() + "\n"));
  }
  lock_file_.close();
}

bool DirectoryClaim::is_superseded() {
  const std::optional<DirectoryOwner> owner = read_owner(owner_path());
  if (!owner || owner->process == process_) return false;
  // Before its own claim, this process is the later one; claim() knows the exception.
  if (has_claimed_ && (owner->uid != uid_ || owner->attempt >= attempt_)) return true;
  const Result<void> claimed = claim();
  return !claimed && claimed.error().code == ExitCode::kTempFail;
}

}  // namespace oarlock
