#include "trainer/checkpoint/fence.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "common/file_lock.h"
#include "common/files.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kTakenOver[] = "may not write here any more";
constexpr char kLockFile[] = ".lock";
constexpr char kGeneration[] = "generation";
constexpr char kGroup[] = "group";
constexpr auto kLockTimeout = std::chrono::seconds(5);
constexpr auto kLockRetryInterval = std::chrono::milliseconds(5);
constexpr int64_t kMaxGeneration = int64_t{1} << 53;  // far above any number of groups, and below the protocol's limit
constexpr size_t kMaxDisplaced = 16;                  // displaced jobs that are remembered

tl::unexpected<Error> not_a_fence(const std::string& what) {
  return fail(ExitCode::kDataErr,
              fmt::format("{}: not a fence file; remove it if no other job writes to this directory", what));
}

Result<Fence> read_fence(const fs::path& root) {
  const fs::path path = root / kFenceFile;
  const auto text = read_regular_file(path, kMaxFenceBytes);
  std::error_code ignored;
  if (!text && text.error().code == ExitCode::kNoInput && !fs::exists(path, ignored)) return Fence{};
  const bool is_other = !text && (text.error().code == ExitCode::kNoInput || text.error().code == ExitCode::kDataErr);
  if (!text && !is_other) return tl::make_unexpected(as_checkpoint_error(text.error(), path));
  if (is_other) return not_a_fence(text.error().message);
  const json value = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const int attempt = integer_at(value, "attempt", -1);
  // Releases before the generation was added wrote none, and one generation in each attempt.
  const int64_t generation =
      value.is_object() && !value.contains(kGeneration) ? 0 : integer_at(value, kGeneration, int64_t{-1});
  const bool good =
      value.is_object() && value.contains("uid") && value["uid"].is_string() && attempt >= 0 && generation >= 0 &&
      generation <= kMaxGeneration && (!value.contains(kGroup) || value[kGroup].is_string()) &&
      value.contains("displaced") && value["displaced"].is_array() &&
      std::all_of(value["displaced"].begin(), value["displaced"].end(), [](const json& v) { return v.is_string(); });
  if (!good) return not_a_fence(path.string());
  return Fence{
      .exists = true,
      .owner = {.uid = value["uid"], .attempt = attempt, .generation = generation, .group = value.value(kGroup, "")},
      .displaced = value["displaced"].get<std::vector<std::string>>()};
}

}  // namespace

Result<void> admit(const Fence& fence, const fs::path& root, const CheckpointOwner& owner) {
  if (!fence.exists) return {};
  const auto taken_over = [&](const std::string& loser, const std::string& winner, const char* remedy = "") {
    return fail(ExitCode::kTempFail,
                fmt::format("{}: {} {}: {} has taken over{}", root.string(), loser, kTakenOver, winner, remedy));
  };
  if (fence.owner.uid != owner.uid) {
    if (std::find(fence.displaced.begin(), fence.displaced.end(), owner.uid) == fence.displaced.end()) return {};
    return taken_over(fmt::format("job \"{}\"", owner.uid), fmt::format("job \"{}\"", fence.owner.uid),
                      "; give each its own checkpoint.dir");
  }
  if (owner.attempt < fence.owner.attempt) {
    return taken_over(fmt::format("attempt {} of this job", owner.attempt),
                      fmt::format("attempt {}", fence.owner.attempt));
  }
  // Each launch of a run without a UID begins with generation 0 again.
  if (owner.uid.empty() || owner.attempt > fence.owner.attempt || owner.generation > fence.owner.generation) return {};
  const bool is_same_generation = owner.generation == fence.owner.generation;
  const bool is_same_group = owner.group == fence.owner.group || owner.group.empty() || fence.owner.group.empty();
  if (is_same_generation && is_same_group) return {};
  return taken_over(
      fmt::format("generation {} of attempt {} of this job", owner.generation, owner.attempt),
      fmt::format("{}generation {}", is_same_generation ? "another group of " : "", fence.owner.generation));
}

Fence claimed_by(Fence fence, const CheckpointOwner& owner) {
  // Writers without a UID can be displaced, but cannot be distinguished and excluded later.
  if (fence.exists && fence.owner.uid != owner.uid && !fence.owner.uid.empty())
    fence.displaced.push_back(fence.owner.uid);
  if (fence.displaced.size() > kMaxDisplaced) fence.displaced.erase(fence.displaced.begin());
  fence.exists = true;
  fence.owner = owner;
  return fence;
}

bool is_fenced_off(const Error& error) {
  return error.code == ExitCode::kTempFail && error.message.find(kTakenOver) != std::string::npos;
}

FenceLock::FenceLock(const fs::path& root)
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

Result<void> check_fence(const fs::path& root, const CheckpointOwner& owner) {
  ASSIGN_OR_RETURN(const Fence fence, read_fence(root));
  return admit(fence, root, owner);
}

int64_t claimed_generation(const fs::path& root, const CheckpointOwner& owner) {
  const Result<Fence> fence = read_fence(root);
  const bool is_same = fence && fence->exists && !owner.uid.empty() && fence->owner.uid == owner.uid &&
                       fence->owner.attempt == owner.attempt;
  return is_same ? fence->owner.generation : -1;
}

Result<void> claim_fence(const fs::path& root, const CheckpointOwner& owner) {
  ASSIGN_OR_RETURN(Fence fence, read_fence(root));
  RETURN_IF_ERROR(admit(fence, root, owner));
  if (fence.exists && fence.owner == owner) return {};
  fence = claimed_by(std::move(fence), owner);
  json value{
      {"uid", owner.uid}, {"attempt", owner.attempt}, {kGeneration, owner.generation}, {"displaced", fence.displaced}};
  if (!owner.group.empty()) value[kGroup] = owner.group;
  return write_file_atomically(root / kFenceFile, value.dump() + "\n").map_error(as_save_error);
}

}  // namespace oarlock
