// Polls the progress of running jobs: GET /statusz of each job's rank 0, on dedicated threads, so that no reconcile
// waits for a pod. The number of polls at a time and per second is bounded, each poll has a timeout, and an address
// that does not answer is polled less and less often.
//
// Jobs whose last poll was answered promptly are never kept waiting by the others (unreachable, slow, or not polled
// yet): those share ProgressOptions::slow_threads, one namespace in turn with the next, so that a namespace full of
// unreachable jobs delays only its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/contract.h"
#include "operator/core/model.h"
#include "operator/kube/object_key.h"
#include "operator/kube/transport.h"

namespace oarlock::control {

struct ProgressOptions {
  std::chrono::milliseconds interval{3000};           // between two polls of one job
  std::chrono::milliseconds timeout{2000};            // of one poll
  std::chrono::milliseconds prompt{500};              // an answer that takes longer makes the job a slow one
  std::chrono::milliseconds longest_interval{30000};  // between two polls of an address that does not answer
  double rate = 20;      // polls per second over all jobs that are polled; more jobs are polled less often
  int threads = 4;       // at least 1
  int slow_threads = 2;  // of `threads`: polls at a time of jobs that are not known to answer promptly
};

// What is known of a job's rank 0.
struct RankProbe {
  std::optional<RankStatus> last_status;       // the last answer, of any attempt
  std::optional<Question> last_poll;           // the last finished poll of the present address
  std::optional<SystemTime> step_received_at;  // when the step (and attempt) of last_status was received first
};

class ProgressPoller {
 public:
  // Makes a transport to "http://10.0.0.1:9400"; null: the address is invalid.
  using Connect = std::function<std::shared_ptr<kube::Transport>(const std::string& url)>;
  using OnChange = std::function<void(const kube::ObjectKey& job)>;

  ProgressPoller(ProgressOptions options, Connect connect, OnChange on_change, std::shared_ptr<const Clock> clock);
  ~ProgressPoller();  // stops
  ProgressPoller(const ProgressPoller&) = delete;
  ProgressPoller& operator=(const ProgressPoller&) = delete;

  void start();
  void stop();

  // Polls this address for the job from now on. A poll of an earlier address that is still under way is ignored when it
  // ends. Another uid discards the last status.
  void watch(const kube::ObjectKey& job, const std::string& uid, const std::string& host, int port);
  void pause(const kube::ObjectKey& job);   // nothing to poll for now; the last status is kept
  void forget(const kube::ObjectKey& job);  // the job has finished or is gone

  // Empty if the job has another uid.
  RankProbe latest(const kube::ObjectKey& job, const std::string& uid) const;

  size_t watched() const;  // jobs that are polled

 private:
  struct Target {
    std::string uid;
    std::string url;          // empty: paused
    uint64_t generation = 0;  // of uid and url: an answer of an earlier one is ignored
    SteadyTime due{};
    std::chrono::milliseconds wait{0};  // until the next poll
    bool is_in_flight = false;
    bool is_prompt = false;
    bool has_failed = false;  // the last poll of the url
    RankProbe probe;
  };
  using Targets = std::unordered_map<kube::ObjectKey, Target>;
  struct Candidates {
    Targets::iterator prompt;
    Targets::iterator slow;
  };
  struct Poll {
    std::optional<RankStatus> status;
    std::chrono::nanoseconds took{0};
  };

  void run(const std::stop_token& stop);
  // `uid` is the job's: a rank of another job that has the address does not answer.
  Poll poll(const std::string& url, const std::string& uid, const std::stop_token& stop) const;
  // All of these with the lock held.
  std::chrono::milliseconds usual_interval() const;
  void set_address(Target& target, const std::string& uid, const std::string& url);
  Candidates next_candidates(SteadyTime now);
  bool is_served_before(const Targets::value_type& a, const Targets::value_type& b, SteadyTime now) const;
  bool finish(const kube::ObjectKey& job, uint64_t generation, SystemTime begun, Poll poll);  // true: news

  const ProgressOptions options_;
  const int slow_threads_;
  const Connect connect_;
  const OnChange on_change_;
  const std::shared_ptr<const Clock> clock_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  Targets targets_;
  size_t active_ = 0;                                    // targets that have a url
  std::unordered_map<std::string, uint64_t> last_slow_;  // by namespace: number of its last poll by a slow thread
  uint64_t slow_polls_ = 0;                              // begun so far
  int slow_in_flight_ = 0;
  uint64_t generations_ = 0;
  uint64_t changes_ = 0;  // that may give a waiting thread something to do sooner
  std::vector<std::jthread> threads_;
};

}  // namespace oarlock::control
