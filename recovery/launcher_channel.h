// The channel of a rank to the launcher that started it (docs/recovery.md): one JSON message per line over a socket
// that the rank inherits. LibTorch-free.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/files.h"
#include "recovery/messages.h"
#include "recovery/regroup.h"

namespace oarlock {

// Whether the launcher may start this program ahead of time: only if it calls wait_for_start() (standby.h).
enum class StandbyProcess { kNo, kYes };

class LauncherChannel final : public RegroupChannel {
 public:
  // Takes the socket that `descriptor`, the value of OARLOCK_REGROUP_FD, names. Returns null if the variable is not
  // set: the launcher does not recover ranks in place. Fails with kConfig if it does not name a socket. Call it once
  // per process, because the object owns the descriptor; programs that this process starts do not inherit it.
  static Result<std::unique_ptr<LauncherChannel>> open(const std::optional<std::string>& descriptor,
                                                       StandbyProcess standby);

  explicit LauncherChannel(FileDescriptor socket, StandbyProcess standby = StandbyProcess::kNo);
  ~LauncherChannel() override;
  LauncherChannel(const LauncherChannel&) = delete;
  LauncherChannel& operator=(const LauncherChannel&) = delete;

  Result<Assignment> regroup(int64_t generation, const RecoveryState& state, std::string_view reason,
                             const StopFlag& stop) override;
  bool regroup_requested(int64_t generation) const override {
    return left_generation_.load(std::memory_order_relaxed) >= generation;
  }
  bool growth_requested(int64_t generation) const override {
    return growing_generation_.load(std::memory_order_relaxed) >= generation;
  }

 private:
  void receive();
  void handle(const recovery::RankCommand& command);

  FileDescriptor socket_;
  StandbyProcess standby_;
  FileDescriptor wake_;                          // an eventfd that becomes readable in the destructor
  std::atomic<int64_t> left_generation_{-2};     // groups up to this one must be left
  std::atomic<int64_t> growing_generation_{-2};  // the same, between two steps
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Assignment> assignment_;  // the newest one; guarded by mutex_
  std::optional<std::string> end_;        // why the group cannot recover; guarded by mutex_
  bool is_closed_ = false;                // guarded by mutex_
  std::thread thread_;
};

}  // namespace oarlock
