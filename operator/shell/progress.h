// Progress of running jobs, which is polled from rank 0, and the limit on how often it is written to the status.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/contract.h"
#include "http/client/transport.h"
#include "kube/client/request.h"
#include "operator/core/model.h"
#include "operator/shell/status_request.h"

namespace oarlock::control {

struct ProgressOptions {
  std::chrono::milliseconds interval{3000};       // from the end of a poll of one job to the next one
  std::chrono::milliseconds timeout{2000};        // of one poll
  std::chrono::milliseconds prompt{500};          // a job whose response takes longer is slow
  std::chrono::milliseconds max_interval{30000};  // between two polls of an address that does not respond
  double rate = 20;      // polls that begin per second, over all jobs; jobs that are due wait for their turn
  int threads = 5;       // at least 1
  int slow_threads = 3;  // of `threads`: concurrent polls of jobs that are not known to respond promptly; those that
                         // did not respond to their last poll use one less
};

// The results of polling a job's rank 0.
struct RankProbe {
  std::optional<RankStatus> last_status;       // the last response, of any attempt
  std::optional<LauncherStatus> launcher;      // the last one, of any attempt
  std::optional<StatusPoll> last_poll;         // the last completed poll of the present address
  std::optional<SystemTime> status_sent_at;    // when the poll was sent that last_status is the response to
  std::optional<SystemTime> step_received_at;  // when last_status first had this step, of this process
  // Of all responses of the attempt of last_status: the status of the job is written less often than it is polled, and
  // processes that start again begin at an earlier step.
  api::HighestProgress highest;
};

// Polls GET /statusz of each job's rank 0 on dedicated threads, so that no reconcile waits for a pod. The number of
// concurrent polls and of polls per second is bounded, each poll has a timeout, and an address that does not respond is
// polled with exponential backoff.
//
// Jobs with a new request for a checkpoint come first. The others that are due take turns: in each namespace, those
// that responded promptly to their last poll are one group, those that responded slowly or were not polled yet are a
// second one, and those that did not respond are a third one. The group that was polled least recently is next, and in
// it the job that has waited longest. So a namespace full of jobs, or of jobs that do not respond, hardly delays the
// jobs of other namespaces: with N such groups, a job that is alone in its group waits for at most N other polls. The
// second and third groups of all namespaces use at most ProgressOptions::slow_threads at a time, and the third ones do
// not use all of these, so that any number of unreachable jobs does not delay new and slow ones. Thread-safe.
class ProgressPoller {
 public:
  // Called on a polling thread, without locks, when a job's progress has changed.
  using OnChange = std::function<void(const kube::ObjectKey& job)>;

  ProgressPoller(ProgressOptions options, Connect connect, OnChange on_change, std::shared_ptr<const Clock> clock);
  ~ProgressPoller();  // calls stop()
  ProgressPoller(const ProgressPoller&) = delete;
  ProgressPoller& operator=(const ProgressPoller&) = delete;

  void start();
  void stop();

  // Starts to poll this address for the job. A poll of an earlier address that is in progress is ignored. A uid that
  // differs from the earlier one discards the last status. Each poll carries the number of the request for a checkpoint
  // (common/status_query.h); a new one is sent before all other polls.
  void watch(const kube::ObjectKey& job, const std::string& uid, const std::string& host, int port,
             std::optional<int64_t> checkpoint_request = std::nullopt);

  // Suspends polling, because there is no running rank 0; the last status is kept.
  void pause(const kube::ObjectKey& job);

  // Forgets the job, because it has finished or was deleted.
  void forget(const kube::ObjectKey& job);

  // Returns an empty probe if the uid is not the job's.
  RankProbe latest(const kube::ObjectKey& job, const std::string& uid) const;

  size_t active_jobs() const;  // jobs that are polled

 private:
  // By the last poll of the present address.
  enum class Group { kPrompt, kSlow, kFailed };  // kSlow: also not polled yet
  static constexpr size_t kGroups = 3;

  struct Target {
    std::string uid;
    std::string url;  // empty: paused
    std::optional<int64_t> checkpoint_request;
    bool has_unsent_request = false;  // no poll has carried it yet
    uint64_t generation = 0;          // of uid and url; results of an earlier generation are ignored
    SteadyTime due{};
    std::chrono::milliseconds wait{0};  // until the next poll
    bool is_in_flight = false;
    Group group = Group::kSlow;
    RankProbe probe;
  };
  using Targets = std::unordered_map<kube::ObjectKey, Target>;
  struct PollResult {
    std::optional<RankStatus> status;
    std::optional<LauncherStatus> launcher;
    std::chrono::nanoseconds took{0};
  };

  void run(const std::stop_token& stop);
  PollResult poll(const std::string& url, const StatusQuery& query, const std::stop_token& stop) const;
  // Called with the mutex held.
  void set_address(Target& target, const std::string& uid, const std::string& url);
  bool has_thread(Group group) const;
  Targets::iterator next_target(SteadyTime now);
  // Returns whether the progress has changed.
  bool record(const kube::ObjectKey& job, uint64_t generation, const StatusQuery& query, SystemTime started,
              PollResult result);

  const ProgressOptions options_;
  const int slow_threads_;
  const int failed_threads_;
  const Connect connect_;
  const OnChange on_change_;
  const std::shared_ptr<const Clock> clock_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  Targets targets_;
  size_t active_ = 0;  // targets with a url
  // Number of the last poll of each group of each namespace.
  std::unordered_map<std::string, std::array<uint64_t, kGroups>> last_polls_;
  uint64_t polls_ = 0;  // started so far
  SteadyTime earliest_poll_{};
  std::array<int, kGroups> in_flight_{};
  uint64_t generations_ = 0;
  uint64_t changes_ = 0;  // counts changes that may make a poll due earlier
  std::vector<std::jthread> threads_;
};

// ---- Writes to the status -------------------------------------------------------------------------------------------

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
    std::string namespace_name;
    std::deque<std::string> jobs;
  };
  using Rotation = std::list<Waiting>;

  // Called with the mutex held.
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
