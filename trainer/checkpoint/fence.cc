#include "trainer/checkpoint/fence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock {
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

Result<Fence> read_fence(const std::filesystem::path& root) {
  const std::filesystem::path path = root / kFenceFile;
  const auto text = read_file(path);
  if (!text) {
    if (text.error().code == ExitCode::kNoInput) return Fence{};
    return tl::make_unexpected(text.error());
  }
  const json value = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const bool good =
      value.is_object() && value.contains("uid") && value["uid"].is_string() && value.contains("attempt") &&
      value["attempt"].is_number_integer() && value.contains("displaced") && value["displaced"].is_array() &&
      std::all_of(value["displaced"].begin(), value["displaced"].end(), [](const json& v) { return v.is_string(); });
  if (!good) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: not a fence file; remove it if no other job writes to this folder", path.string()));
  }
  return Fence{.exists = true,
               .owner = {.uid = value["uid"], .attempt = value["attempt"]},
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
    : fd_(::open((root / kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (fd_ < 0) return;
  const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
  while (!held_) {
    held_ = ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
    if (held_ || (errno != EWOULDBLOCK && errno != EINTR) || std::chrono::steady_clock::now() > deadline) return;
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
  return write_file_atomically(root / kFenceFile, value.dump() + "\n");
}

}  // namespace oarlock
