// Asks rank 0 of each running job how far it is (GET /statusz of its pod), seldom, and never in the way of a reconcile:
// on threads of its own, a bounded number at a time and per second, with a time-out, and later and later where nobody
// answers.
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
  std::chrono::milliseconds interval{3000};  // between two questions to one job
  std::chrono::milliseconds timeout{2000};
  std::chrono::milliseconds longest_interval{30000};  // where nobody answers
  double rate = 20;  // questions a second over all jobs: many jobs are asked less often
  int threads = 2;
};

// What is known of a job's rank 0, all as of one moment.
struct Heard {
  std::optional<RankStatus> said;  // last, of whatever attempt
  std::optional<Question> asked;   // the last that ended, of the address that is asked now
};

class ProgressPoller {
 public:
  // A transport to "http://10.0.0.1:9400"; null: that address cannot be.
  using Connect = std::function<std::shared_ptr<kube::Transport>(const std::string& url)>;
  using OnChange = std::function<void(const kube::ObjectKey& job)>;

  ProgressPoller(ProgressOptions options, Connect connect, OnChange on_change, std::shared_ptr<const Clock> clock);
  ~ProgressPoller();  // stops
  ProgressPoller(const ProgressPoller&) = delete;
  ProgressPoller& operator=(const ProgressPoller&) = delete;

  void start();
  void stop();

  // Ask this address for the job from now on; another uid or address forgets what the old one said.
  void watch(const kube::ObjectKey& job, const std::string& uid, const std::string& host, int port);
  void forget(const kube::ObjectKey& job);  // the job is gone
  void pause(const kube::ObjectKey& job);   // nobody to ask now; what was said stays

  // Empty if the job has another uid.
  Heard latest(const kube::ObjectKey& job, const std::string& uid) const;

  size_t watched() const;

 private:
  struct Target {
    std::string uid;
    std::string url;  // empty: paused
    SteadyTime due{};
    std::chrono::milliseconds wait{0};  // until the next question
    bool asking = false;
    Heard heard;
  };

  void run(const std::stop_token& stop);
  // `uid` is the job's: a rank of another job that has the address does not answer.
  std::optional<RankStatus> ask(const std::string& url, const std::string& uid, const std::stop_token& stop) const;
  std::chrono::milliseconds usual_interval() const;  // with the lock held

  const ProgressOptions options_;
  const Connect connect_;
  const OnChange on_change_;
  const std::shared_ptr<const Clock> clock_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::unordered_map<kube::ObjectKey, Target> targets_;
  uint64_t watches_ = 0;  // calls of watch(), so that a waiting thread looks again
  std::vector<std::jthread> threads_;
};

}  // namespace oarlock::control
