#include "trainer/checkpoint/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/file_lock.h"
#include "common/files.h"
#include "common/json_access.h"
#include "common/number.h"
#include "common/status_macros.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr size_t kMaxNameLength = 255;
constexpr char kHighWaterFile[] = "reached";
constexpr size_t kHighWaterBytes = 21;

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = parse_integer<int64_t>(std::string_view(name).substr(kStepPrefix.size()));
  return step && checkpoint_folder_name(*step) == name ? step : std::nullopt;
}

// Probes checkpoints from the newest step downwards. probe(folder) returns the step of a valid checkpoint.
Result<CheckpointSearch> search_newest(const fs::path& root,
                                       const std::function<Result<int64_t>(const fs::path&)>& probe) {
  ASSIGN_OR_RETURN(const std::vector<StepFolder> folders, list_checkpoints(root));
  CheckpointSearch search;
  for (const StepFolder& folder : folders) {
    const auto step = probe(folder.path);
    if (step && *step == folder.step) {
      search.folder = folder.path;
      search.step = folder.step;
      break;
    }
    if (!step && step.error().code == ExitCode::kNoInput) continue;  // another writer has just removed it
    if (!step && step.error().code != ExitCode::kDataErr) return tl::make_unexpected(step.error());
    search.skipped.push_back({folder.path, step ? fmt::format("{}: it contains step {}", folder.path.string(), *step)
                                                : step.error().message});
  }
  return search;
}

bool lacks_symbolic_links(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

// Returns -1 if the file cannot be opened. Without O_NONBLOCK, open(2) of a named pipe waits for a reader.
int open_high_water(const fs::path& root) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC;
  const fs::path path = root / kHighWaterFile;
  int fd = ::open(path.c_str(), kFlags | O_NONBLOCK, 0644);
  if (fd < 0 && errno == EWOULDBLOCK) fd = ::open(path.c_str(), kFlags, 0644);  // waits for the end of a lease
  struct stat status{};
  if (fd < 0 || (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode))) return fd;
  ::close(fd);
  return -1;
}

// Returns 0 if there is no mark.
Result<int64_t> read_mark(const fs::path& root) {
  const auto text = read_regular_file(root / kHighWaterFile, kHighWaterBytes);
  if (!text && text.error().code != ExitCode::kNoInput && text.error().code != ExitCode::kDataErr)
    return tl::make_unexpected(text.error());
  if (!text || text->size() != kHighWaterBytes) return 0;
  const auto step = parse_integer<int64_t>(std::string_view(*text).substr(0, kHighWaterBytes - 1)).value_or(0);
  return std::max<int64_t>(step, 0);
}

}  // namespace

std::string checkpoint_folder_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

Result<std::vector<StepFolder>> list_checkpoints(const fs::path& root) {
  std::vector<StepFolder> folders;
  const std::error_code error = visit_folder(root, [&folders](const fs::path& path) {
    if (const auto step = step_of(path.filename().string())) folders.push_back({*step, path});
  });
  if (error && error != std::errc::no_such_file_or_directory) {
    return tl::make_unexpected(as_checkpoint_error(
        fail_errno(error.value(), fmt::format("{}: the checkpoints cannot be listed", root.string())).value(), root));
  }
  std::sort(folders.begin(), folders.end(), [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return folders;
}

Result<CheckpointSearch> find_latest_checkpoint(const fs::path& root) { return search_newest(root, verify_checkpoint); }

Result<LatestCheckpoint> read_latest_checkpoint(const fs::path& root) {
  LatestCheckpoint latest;
  const auto probe = [&](const fs::path& folder) -> Result<int64_t> {
    latest.checkpoint.reset();  // frees its memory first
    ASSIGN_OR_RETURN(latest.checkpoint, read_checkpoint(folder));
    return latest.checkpoint->state.step;
  };
  ASSIGN_OR_RETURN(latest.search, search_newest(root, probe));
  if (!latest.search.folder) latest.checkpoint.reset();
  return latest;
}

Result<LatestState> read_latest_state(const fs::path& root) {
  LatestState latest;
  const auto probe = [&](const fs::path& folder) -> Result<int64_t> {
    ASSIGN_OR_RETURN(latest.state, read_checkpoint_state(folder));
    return latest.state->step;
  };
  ASSIGN_OR_RETURN(latest.search, search_newest(root, probe));
  if (!latest.search.folder) latest.state.reset();
  return latest;
}

Result<void> set_link(const fs::path& root, const std::string& name, const std::string& target) {
  if (link_target(root, name) == target) return {};
  const fs::path temporary = root / fmt::format(".link-{}-{}", name, ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    const int error = errno;
    if (!lacks_symbolic_links(error))
      return fail_errno(error, fmt::format("{}: the link to {} cannot be created", (root / name).string(), target));
    RETURN_IF_ERROR(write_file_atomically(temporary, target + "\n"));
  }
  if (::rename(temporary.c_str(), (root / name).c_str()) == 0) return {};
  const int error = errno;
  ::unlink(temporary.c_str());
  return fail_errno(error, fmt::format("{}: the link to {} cannot be set", (root / name).string(), target));
}

std::optional<std::string> link_target(const fs::path& root, const std::string& name) {
  std::error_code error;
  const fs::path target = fs::read_symlink(root / name, error);
  if (!error) return target.string();
  if (!fs::is_regular_file(root / name, error) || fs::file_size(root / name, error) > kMaxNameLength + 1)
    return std::nullopt;
  auto content = read_regular_file(root / name, kMaxNameLength + 1);
  if (!content || !content->ends_with('\n')) return std::nullopt;
  content->pop_back();
  const bool is_name = content->starts_with(kStepPrefix) && std::all_of(content->begin(), content->end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                       });
  return is_name ? std::optional(*content) : std::nullopt;
}

HighWater::HighWater(const fs::path& root) : fd_(open_high_water(root)) {
  const Result<int64_t> mark = read_mark(root);
  step_ = mark.value_or(0);
  if (mark || fd_ < 0) return;
  ::close(std::exchange(fd_, -1));  // it may be higher
}

HighWater::~HighWater() {
  if (fd_ >= 0) ::close(fd_);
}

void HighWater::raise(int64_t step) {
  if (fd_ < 0 || step <= step_) return;
  step_ = step;
  const std::string text =
      fmt::format("{:020}\n", step);  // a constant length, so that each write replaces the last one
  [[maybe_unused]] const ssize_t written = ::pwrite(fd_, text.data(), text.size(), 0);
}

int64_t read_high_water(const fs::path& root) { return read_mark(root).value_or(0); }

namespace {

using nlohmann::json;

constexpr char kTakenOver[] = "may not write here any more";
constexpr char kLockFile[] = ".lock";
constexpr auto kLockTimeout = std::chrono::seconds(5);
constexpr auto kLockRetryInterval = std::chrono::milliseconds(5);
constexpr size_t kMaxDisplaced = 16;  // displaced jobs that are remembered

struct Fence {
  bool exists = false;
  CheckpointOwner owner;
  std::vector<std::string> displaced;  // UIDs of the previous owners, latest last
};

tl::unexpected<Error> not_a_fence(const std::string& what) {
  return fail(ExitCode::kDataErr,
              fmt::format("{}: not a fence file; remove it if no other job writes to this folder", what));
}

Result<Fence> read_fence(const std::filesystem::path& root) {
  const std::filesystem::path path = root / kFenceFile;
  const auto text = read_regular_file(path, kMaxFenceBytes);
  std::error_code ignored;
  if (!text && text.error().code == ExitCode::kNoInput && !fs::exists(path, ignored)) return Fence{};
  const bool is_other = !text && (text.error().code == ExitCode::kNoInput || text.error().code == ExitCode::kDataErr);
  if (!text && !is_other) return tl::make_unexpected(as_checkpoint_error(text.error(), path));
  if (is_other) return not_a_fence(text.error().message);
  const json value = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const int attempt = integer_at(value, "attempt", -1);
  const bool good =
      value.is_object() && value.contains("uid") && value["uid"].is_string() && attempt >= 0 &&
      value.contains("displaced") && value["displaced"].is_array() &&
      std::all_of(value["displaced"].begin(), value["displaced"].end(), [](const json& v) { return v.is_string(); });
  if (!good) return not_a_fence(path.string());
  return Fence{.exists = true,
               .owner = {.uid = value["uid"], .attempt = attempt},
               .displaced = value["displaced"].get<std::vector<std::string>>()};
}

// Returns kTempFail if the fence excludes `owner`.
Result<void> admit(const Fence& fence, const std::filesystem::path& root, const CheckpointOwner& owner) {
  if (!fence.exists) return {};
  if (fence.owner.uid == owner.uid) {
    if (owner.attempt >= fence.owner.attempt) return {};
    return fail(ExitCode::kTempFail, fmt::format("{}: attempt {} of this job {}: attempt {} has taken over",
                                                 root.string(), owner.attempt, kTakenOver, fence.owner.attempt));
  }
  if (std::find(fence.displaced.begin(), fence.displaced.end(), owner.uid) == fence.displaced.end()) return {};
  return fail(ExitCode::kTempFail,
              fmt::format("{}: job \"{}\" {}: job \"{}\" has taken over; give each its own checkpoint.dir",
                          root.string(), owner.uid, kTakenOver, fence.owner.uid));
}

}  // namespace

bool is_fenced_off(const Error& error) {
  return error.code == ExitCode::kTempFail && error.message.find(kTakenOver) != std::string::npos;
}

FenceLock::FenceLock(const std::filesystem::path& root)
    : fd_(open_lock_file(root / kLockFile).value_or(FileDescriptor()).release()) {
  if (fd_ < 0) return;
  const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
  while (!held_) {
    const Result<LockOutcome> outcome = try_lock(fd_, LockMode::kExclusive, root / kLockFile);
    held_ = outcome == LockOutcome::kLocked;
    if (outcome != LockOutcome::kLockedByOther || std::chrono::steady_clock::now() > deadline) return;
    std::this_thread::sleep_for(kLockRetryInterval);
  }
}

FenceLock::~FenceLock() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> check_fence(const std::filesystem::path& root, const CheckpointOwner& owner) {
  ASSIGN_OR_RETURN(const Fence fence, read_fence(root));
  return admit(fence, root, owner);
}

Result<void> claim_fence(const std::filesystem::path& root, const CheckpointOwner& owner) {
  ASSIGN_OR_RETURN(Fence fence, read_fence(root));
  RETURN_IF_ERROR(admit(fence, root, owner));
  if (fence.exists && fence.owner == owner) return {};
  // Writers without a UID can be displaced, but cannot be distinguished and excluded later.
  if (fence.exists && fence.owner.uid != owner.uid && !fence.owner.uid.empty()) {
    fence.displaced.push_back(fence.owner.uid);
  }
  if (fence.displaced.size() > kMaxDisplaced) fence.displaced.erase(fence.displaced.begin());
  const json value{{"uid", owner.uid}, {"attempt", owner.attempt}, {"displaced", fence.displaced}};
  return write_file_atomically(root / kFenceFile, value.dump() + "\n").map_error(as_save_error);
}

}  // namespace oarlock
