// How often the operator writes a status only because a job's progress has changed: a budget for the whole cluster.
// Each job waits for its turn behind those that asked before it, so that of N jobs which progress all the time each is
// written every N / rate seconds, however many there are.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "common/clock.h"
#include "operator/kube/object_key.h"

namespace oarlock::control {

// Thread-safe.
class ProgressBudget {
 public:
  static constexpr double kRate = 5;  // writes per second
  static constexpr int kBurst = 10;   // writes at once after a quiet time

  explicit ProgressBudget(std::shared_ptr<const Clock> clock, double rate = kRate);

  // Empty: the job may write its progress now, once. Otherwise the time until its turn, which is reserved.
  std::optional<std::chrono::milliseconds> time_until_turn(const kube::ObjectKey& job);

  // The job's progress is written with something else, or the job is gone.
  void forget(const kube::ObjectKey& job);

 private:
  const std::shared_ptr<const Clock> clock_;
  const std::chrono::nanoseconds gap_;  // between two writes
  std::mutex mutex_;
  SteadyTime next_turn_{};
  std::unordered_map<kube::ObjectKey, SteadyTime> turns_;  // of the jobs that wait
};

}  // namespace oarlock::control
