// Limits how often progress alone is written to the status.
#pragma once

#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "common/clock.h"
#include "operator/kube/client/request.h"

namespace oarlock::control {

// A cluster-wide rate limit for status writes whose only change is progress: a token bucket, and a queue of the jobs
// that wait for a token. Namespaces take turns, and so do the jobs of a namespace, so that a namespace of many jobs
// delays only its own: with N waiting jobs in each of M namespaces, each job is written every N * M / rate seconds. A
// job that leaves the queue without writing costs no token. Thread-safe.
class ProgressWriteLimiter {
 public:
  static constexpr double kRate = 5;  // writes per second
  static constexpr int kBurst = 10;   // writes without delay after an idle period

  explicit ProgressWriteLimiter(std::shared_ptr<const Clock> clock, double rate = kRate);

  // Returns nothing if the job may write its progress now, once. Otherwise adds the job to the queue, unless it waits
  // already, and returns the time after which the caller should repeat the call.
  std::optional<std::chrono::milliseconds> time_until_turn(const kube::ObjectKey& job);

  // Removes the job from the queue, because its progress was written together with another change or the job was
  // deleted.
  void forget(const kube::ObjectKey& job);

 private:
  // The waiting jobs of one namespace; never empty.
  struct Waiting {
    std::string name_space;
    std::deque<std::string> jobs;
  };
  using Rotation = std::list<Waiting>;

  // These with the mutex held.
  void add_credit();
  bool is_waiting(const kube::ObjectKey& job) const;
  // The number of jobs that are served before a waiting one.
  int64_t position_of(const kube::ObjectKey& job) const;
  void add(const kube::ObjectKey& job);
  // With `served`, the other namespaces come before the job's namespace now.
  void remove(const kube::ObjectKey& job, bool served);

  const std::shared_ptr<const Clock> clock_;
  const std::chrono::nanoseconds interval_;  // of one token
  std::mutex mutex_;
  SteadyTime credited_until_;
  std::chrono::nanoseconds credit_;                              // interval_ is one token
  Rotation rotation_;                                            // the first namespace is served next
  std::unordered_map<std::string, Rotation::iterator> by_name_;  // by namespace
};

}  // namespace oarlock::control
