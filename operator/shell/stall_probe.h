// The reports of the nodes of jobs whose rank 0 does not step: which rank the others wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "kube/client/request.h"
#include "operator/core/model.h"
#include "operator/shell/status_request.h"

namespace oarlock::control {

// One stall of one job. Another value of `since` is another stall.
struct Stall {
  std::string uid;
  SystemTime since{};  // the last step
  int port = 0;        // of local rank 0 of each node; the other ranks use the following ports
  int ranks_per_node = 1;
  struct Node {
    int node_rank = 0;
    std::string host;
  };
  std::vector<Node> nodes{};
};

// Requests GET /statusz once from the nodes of each job that has stopped to step, of a few jobs at a time, because a
// node that does not answer costs its time limit; the namespaces take turns. The time and the number of requests for a
// job are bounded, and so is the number of waiting jobs: others wait for a place as long as for their reports.
// Thread-safe.
class StallProbe {
 public:
  struct Options {
    size_t threads = 8;                          // each requests the reports of one job
    size_t max_requests = 256;                   // of one job, to its first nodes
    std::chrono::milliseconds timeout{1000};     // of one request
    std::chrono::milliseconds job_limit{10000};  // nodes that were not requested within this time have no reports
    std::chrono::seconds max_wait{20};           // a job is not reported as stalled while its reports are awaited
    size_t max_waiting = 100;                    // jobs
    size_t max_of_namespace = 10;                // waiting jobs
  };
  // Called on the threads of this object, without locks, when the reports of a job are complete.
  using OnReports = std::function<void(const kube::ObjectKey& job)>;

  StallProbe(Options options, Connect connect, OnReports on_reports, std::shared_ptr<const Clock> clock);
  ~StallProbe();  // calls stop()
  StallProbe(const StallProbe&) = delete;
  StallProbe& operator=(const StallProbe&) = delete;

  void start();
  void stop();

  // Returns the reports about this stall; absent while they are being requested, which the first call starts, and the
  // first one a minute after the last reports, or a later one while too many jobs wait; none if they have not arrived
  // after max_wait.
  std::optional<std::vector<StallReport>> reports(const kube::ObjectKey& job, const Stall& stall);

  // Forgets the job's reports, because it steps again, has finished or was deleted.
  void forget(const kube::ObjectKey& job);

 private:
  struct Entry {
    std::string uid;
    SystemTime since{};
    std::optional<std::vector<StallReport>> reports;  // absent: they have not arrived
    SteadyTime changed{};                             // when they were first wanted, or arrived
    bool is_waiting = false;                          // or was
  };

  void run(const std::stop_token& stop);
  std::vector<StallReport> request(const Stall& stall, const std::stop_token& stopped) const;

  const Options options_;
  const Connect connect_;
  const OnReports on_reports_;
  const std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::unordered_map<kube::ObjectKey, Entry> entries_;
  std::deque<std::pair<kube::ObjectKey, Stall>> waiting_;
  std::unordered_map<std::string, uint64_t> last_turns_;  // by namespace
  uint64_t turns_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace oarlock::control
