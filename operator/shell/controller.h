// The loop: a job's key from the queue, what the cache knows of it, the decision, its actions.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "operator/core/model.h"
#include "operator/kube/work_queue.h"
#include "operator/shell/byte_budget.h"
#include "operator/shell/cache.h"
#include "operator/shell/execute.h"
#include "operator/shell/metrics.h"
#include "operator/shell/own_writes.h"
#include "operator/shell/progress_budget.h"
#include "operator/shell/progress_poller.h"

namespace oarlock::control {

class Controller {
 public:
  struct Parts {
    const Cache* cache;
    ProgressPoller* poller;
    kube::WorkQueue* queue;
    std::shared_ptr<OwnWrites> own_writes;
    std::shared_ptr<Executor> executor;
    kube::Client client;  // to read what is not in the cache
    std::shared_ptr<Metrics> metrics;
    std::shared_ptr<const Clock> clock;
    std::function<Plan(const Observed&)> decide;
    std::optional<std::string> metrics_peers = std::nullopt;  // Observed::metrics_peers
  };

  // The parts must outlive it.
  Controller(Parts parts, const Logger& log);
  ~Controller();  // stops
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // When the cache has synced. `since`: a version of the jobs that the server had when nobody else acted on jobs any
  // more; empty: not known.
  void start(int workers, std::string since);
  void stop();  // ends the queue, lets each worker finish its API call, and waits for it

 private:
  // What becomes of the key.
  enum class Result { kSuccess, kError, kRequeue, kRequeueAfter };
  struct Done {
    Result result = Result::kSuccess;
    std::chrono::milliseconds after{0};  // of kRequeueAfter, and of kError where the server asked for patience
  };

  void work(const std::stop_token& stop);
  Done reconcile(const kube::ObjectKey& key, const std::stop_token& stop);
  bool needs_whole_spec(const Job& job) const;
  std::shared_ptr<const Job> read_whole(const Job& trimmed, Done& done);
  void remember_refusal(const std::string& job_uid, const std::string& what);  // empty: nothing is refused any more
  Plan plan_for(const kube::ObjectKey& key, const Job& job, bool is_first_look);
  void add_foreign_objects(const std::string& job_uid, Observed& observed);
  Observed observe(const kube::ObjectKey& key, const Job& job, bool is_first_look);
  void follow_progress(const kube::ObjectKey& key, const Observed& observed);
  Done stopped(const Job& job, const Stop& why);

  // Objects of others that have a job's names: not in the cache, so they are read live for as long as they are there.
  struct Foreign {
    Kind kind;
    kube::ObjectKey key;
    auto operator<=>(const Foreign&) const = default;
  };
  std::vector<Foreign> foreign_of(const std::string& job_uid) const;
  void add_foreign(const std::string& job_uid, Foreign foreign);
  void drop_foreign(const std::string& job_uid, const Foreign& foreign);

  const Parts parts_;
  const Logger log_;
  ProgressBudget budget_;
  mutable std::mutex mutex_;
  ByteBudget live_reads_;
  std::unordered_map<std::string, std::set<Foreign>> foreign_;   // by the job's uid
  std::unordered_map<std::string, std::string> refusals_;        // by the job's uid: Observed.last_error
  std::unordered_map<kube::ObjectKey, std::string> known_uids_;  // of the jobs that were seen, to clean up after them
  std::string since_;
  std::vector<std::jthread> workers_;
};

}  // namespace oarlock::control
