// The controller: workers that take the keys of jobs from the queue and reconcile them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "kube/client/work_queue.h"
#include "operator/core/model.h"
#include "operator/shell/byte_budget.h"
#include "operator/shell/cache.h"
#include "operator/shell/executor.h"
#include "operator/shell/metrics.h"
#include "operator/shell/name_conflicts.h"
#include "operator/shell/progress.h"
#include "operator/shell/stall_probe.h"

namespace oarlock::control {

// One reconcile of a job builds Observed from the cache, calls the (pure) reconciler, and executes the resulting plan.
class Controller {
 public:
  struct Dependencies {
    Cache* cache;
    ProgressPoller* poller;
    StallProbe* stalls;
    kube::WorkQueue* queue;
    std::shared_ptr<OwnWrites> own_writes;
    std::shared_ptr<Executor> executor;
    kube::Client client;  // for live reads
    std::shared_ptr<Metrics> metrics;
    std::shared_ptr<const Clock> clock;
    std::function<Plan(const Observed&)> reconciler;
    std::optional<std::string> metrics_peers = std::nullopt;  // Observed::metrics_peers
    std::string launcher_image{};                             // Observed::launcher_image
    int pending_timeout_seconds = 0;                          // Observed::pending_timeout_seconds; 0: absent
  };

  // The pointers in `dependencies` must remain valid for the lifetime of the controller.
  Controller(Dependencies dependencies, const Logger& log);
  ~Controller();  // calls stop()
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // Starts the workers. The cache must have synced. `leading_since` is a resource version of the jobs that was read
  // after this process became the leader; empty if unknown.
  void start(int workers, std::string leading_since);

  // Shuts the queue down and waits until every worker has completed the API call that it is making.
  void stop();

 private:
  // The result of a reconcile, which determines whether and when the key is queued again, as in controller-runtime.
  struct ReconcileResult {
    enum class Kind { kSuccess, kError, kRequeue, kRequeueAfter };
    Kind kind = Kind::kSuccess;
    // Set for kRequeueAfter, and for kError if the server sent Retry-After.
    std::chrono::milliseconds after{0};
  };

  void run_worker(const std::stop_token& stop);
  const char* requeue(const kube::ObjectKey& key,
                      const ReconcileResult& result);  // returns the value of the metric's label
  ReconcileResult reconcile(const kube::ObjectKey& key, const std::stop_token& stop);
  ReconcileResult execute(const kube::ObjectKey& key, const Job& job, const Plan& plan, const std::stop_token& stop);
  ReconcileResult handle(const Job& job, const Interruption& interruption);
  void emit_failed_create(const Job& job, const std::string& action, const std::string& error);
  // Updates the uid that is known for the key. Returns whether it is the first reconcile of the job.
  bool track(const kube::ObjectKey& key, const Job* job);
  void forget(const kube::ObjectKey& key, const std::string& job_uid);
  bool needs_full_spec(const Job& job) const;
  std::shared_ptr<const Job> read_full_job(const Job& trimmed, ReconcileResult& result);
  Plan make_plan(const kube::ObjectKey& key, const Job& job, bool is_first_reconcile);
  Observed observe(const kube::ObjectKey& key, const Job& job, bool is_first_reconcile);
  void add_stall_reports(const kube::ObjectKey& key, Observed& observed);
  void update_polling(const kube::ObjectKey& key, const Observed& observed);
  void set_template_error(const Job& job, const std::string& error);
  void set_rejection(const std::string& job_uid, const std::string& error);  // empty: the last plan was accepted

  const Dependencies deps_;
  const Logger log_;
  ProgressWriteLimiter progress_writes_;
  NameConflicts conflicts_;
  ByteBudget live_reads_;
  std::string leading_since_;
  mutable std::mutex mutex_;
  // Guarded by mutex_. The first two maps are keyed by the job's uid.
  std::unordered_map<std::string, std::string> rejections_;  // Observed::last_error
  struct TemplateError {
    int64_t generation = 0;  // of the spec that was rejected
    // Of the profile with which it was merged.
    std::string profile_uid;
    int64_t profile_generation = 0;
    std::string message;

    bool concerns(const Job& job) const;
  };
  std::unordered_map<std::string, TemplateError> template_errors_;  // Observed::template_error
  std::unordered_map<kube::ObjectKey, std::string> known_uids_;     // of the jobs that were reconciled
  std::vector<std::jthread> workers_;
};

}  // namespace oarlock::control
