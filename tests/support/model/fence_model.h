// A model of the fence of a checkpoint directory: processes of rank 0, each of a later generation than the one before,
// claim the directory, publish a checkpoint and set the link "last", in every order of their steps. Each of them may
// pause at any step for any time, as one whose node is cut off. The rules are those of trainer/checkpoint/fence.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "trainer/checkpoint/fence.h"

namespace oarlock::test {

enum class FenceBug {
  kNone,
  kNoGeneration,    // the fence distinguishes attempts only
  kUncheckedLinks,  // the link is set later than the lock and the check of the save
  kCheckedOnce,     // one check for all names that a save changes
};

struct FenceModelOptions {
  bool locks_expire = false;  // a process that waits for the lock continues without it
  FenceBug bug = FenceBug::kNone;
};

struct FenceModelResult {
  size_t states = 0;
  std::string violation;  // empty: none
};

class FenceModel {
 public:
  explicit FenceModel(FenceModelOptions options) : options_(options) {}

  // Visits all states.
  FenceModelResult check() {
    std::deque<World> queue = {World{}};
    std::set<Key> seen = {key_of(queue.front())};
    FenceModelResult out;
    for (; !queue.empty() && out.violation.empty(); queue.pop_front()) {
      const World world = queue.front();
      for (size_t i = 0; i < kProcesses; ++i) {
        for (const bool ignores_lock : {false, true}) {
          World next = world;
          if (!step(next, i, ignores_lock)) continue;
          if (next.late_changes[i] > (options_.locks_expire ? 1 : 0)) {
            out.violation = "generation " + std::to_string(i) + " changes " + std::to_string(next.late_changes[i]) +
                            " names after a later one has claimed the directory";
          }
          if (seen.insert(key_of(next)).second) queue.push_back(next);
        }
      }
    }
    out.states = seen.size();
    return out;
  }

 private:
  static constexpr size_t kProcesses = 3;
  enum class At { kStart, kClaim, kUnlock, kOpened, kPublish, kPublishChecked, kLink, kLinkChecked, kEnd };

  struct World {
    Fence fence;
    int lock_holder = -1;
    std::array<At, kProcesses> at{};
    std::array<int, kProcesses> late_changes{};  // of names, after a later process has claimed the directory
  };
  using Key = std::tuple<int64_t, int, std::array<At, kProcesses>, std::array<int, kProcesses>>;

  static Key key_of(const World& world) {
    return {world.fence.exists ? world.fence.owner.generation : -1, world.lock_holder, world.at, world.late_changes};
  }

  CheckpointOwner owner(size_t process) const {
    const bool has_generation = options_.bug != FenceBug::kNoGeneration;
    return {.uid = "job", .attempt = 0, .generation = has_generation ? static_cast<int64_t>(process) : 0};
  }

  bool is_admitted(const World& world, size_t i) const { return admit(world.fence, "/root", owner(i)).has_value(); }

  // Returns whether process i holds the lock afterwards, or may continue without it.
  bool lock(World& world, size_t i, bool ignores_lock) const {
    if (ignores_lock) return options_.locks_expire && world.lock_holder >= 0;
    if (world.lock_holder >= 0) return false;
    world.lock_holder = static_cast<int>(i);
    return true;
  }
  static void unlock(World& world, size_t i) {
    if (world.lock_holder == static_cast<int>(i)) world.lock_holder = -1;
  }
  static void change_name(World& world, size_t i) {
    for (size_t later = i + 1; later < kProcesses; ++later) {
      if (world.at[later] < At::kUnlock) continue;
      ++world.late_changes[i];
      return;
    }
  }
  static bool end(World& world, size_t i) {
    unlock(world, i);
    world.at[i] = At::kEnd;
    return true;
  }

  // Returns whether the process can take its next step.
  bool step(World& world, size_t i, bool ignores_lock) const {
    At& at = world.at[i];
    const bool takes_lock = at == At::kStart || at == At::kOpened;
    if (at == At::kEnd || (ignores_lock && !takes_lock)) return false;
    if (at == At::kStart && i > 0 && world.at[i - 1] == At::kStart) return false;  // it replaces that process
    if (takes_lock && !lock(world, i, ignores_lock)) return false;
    switch (at) {
      case At::kStart:
        at = At::kClaim;
        break;
      case At::kClaim:
        if (!is_admitted(world, i)) return end(world, i);
        world.fence = claimed_by(world.fence, owner(i));
        at = At::kUnlock;
        break;
      case At::kUnlock:
        unlock(world, i);
        at = At::kOpened;
        break;
      case At::kOpened:
        at = At::kPublish;
        break;
      case At::kPublish:
        if (!is_admitted(world, i)) return end(world, i);
        at = At::kPublishChecked;
        break;
      case At::kPublishChecked:
        change_name(world, i);
        if (options_.bug == FenceBug::kUncheckedLinks) unlock(world, i);
        at = options_.bug == FenceBug::kNone || options_.bug == FenceBug::kNoGeneration ? At::kLink : At::kLinkChecked;
        break;
      case At::kLink:
        if (!is_admitted(world, i)) return end(world, i);
        at = At::kLinkChecked;
        break;
      case At::kLinkChecked:
        change_name(world, i);
        return end(world, i);
      case At::kEnd:
        break;
    }
    return true;
  }

  FenceModelOptions options_;
};

}  // namespace oarlock::test
