#include "operator/shell/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "operator/core/desired.h"
#include "operator/core/disruption.h"
#include "operator/core/lifetime.h"
#include "operator/core/membership.h"
#include "operator/core/profile.h"
#include "operator/core/queue.h"
#include "operator/core/reconcile.h"
#include "operator/core/rejection.h"
#include "operator/core/stall.h"
#include "operator/core/status.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using ErrorKind = kube::ApiErrorKind;

// While the cache lags behind the operator's own writes, its events requeue the job; this delay covers the case that no
// event arrives.
constexpr auto kStaleCacheDelay = std::chrono::seconds(1);
// Between two tries for a job whose objects the cache has dropped.
constexpr auto kIncompleteCacheDelay = std::chrono::seconds(30);

// The longest time between two tries of a failed call, whatever Retry-After the API server sends; the Job controller
// uses the same limit. After a quota has been raised, a job starts within this time.
constexpr std::chrono::seconds kMaxRetryDelay{60};

// A plan for thousands of pods takes minutes. If other jobs wait for a worker, it is interrupted after this time, and
// the remainder is planned again later; otherwise a few large jobs would occupy all workers.
constexpr auto kTimeSlice = std::chrono::seconds(5);
constexpr std::chrono::milliseconds kYieldDelay{1};

// Memory for live reads of trimmed jobs. Response, parser and job together take about eight times the size of the spec.
constexpr size_t kLiveReadBudget = 24u << 20;  // bytes
constexpr size_t kCopiesOfSpec = 8;
constexpr size_t kKibOutsideSpec = 32;

// After this many failures in a row, any other error is reported, too.
constexpr int kReportedFailures = 3;

// Whether the API server rejects the object itself, which is reported in an event and in the job's condition. Webhooks
// deny objects with any status code, and a webhook that does not respond is an internal error.
bool is_rejection(const kube::ApiError& error) {
  return error.kind == ErrorKind::kForbidden || error.kind == ErrorKind::kInvalid ||
         error.message.find("webhook") != std::string::npos;
}

// Whether the plan only updates what rank 0 reports, and how many pods are ready. Pods can change these at any time, so
// the write can be delayed, and is not worth a line in the log.
bool is_progress_update(const Plan& plan, const api::Status& present) {
  const auto* patch = plan.actions.empty() ? nullptr : std::get_if<PatchStatus>(&plan.actions.front());
  if (patch == nullptr || patch->status == present) return false;
  const bool has_others = std::any_of(plan.actions.begin() + 1, plan.actions.end(),
                                      [](const Action& action) { return !std::holds_alternative<EmitEvent>(action); });
  if (has_others) return false;
  api::Status next = patch->status;
  next.progress = present.progress;
  next.highest_progress = present.highest_progress;
  next.recoveries = present.recoveries;
  next.in_pod_restarts = present.in_pod_restarts;
  next.usage = present.usage;
  next.startup = present.startup;
  if (next.elastic && present.elastic) next.elastic->active_nodes = present.elastic->active_nodes;
  next.nodes.ready = present.nodes.ready;
  next.nodes.summary = present.nodes.summary;
  // Kueue explains again and again why a job waits.
  if (next.queue && next.queue->cluster_queue.empty()) {
    for (size_t i = 0; i < next.conditions.size() && next.conditions.size() == present.conditions.size(); ++i)
      next.conditions[i].message = present.conditions[i].message;
  }
  return next == present;
}

// Whether the status already reports that this generation of the spec is invalid, so that there is nothing to decide
// before the spec changes.
bool is_reported_invalid(const Job& job) {
  const api::Condition* condition = find_condition(job.status, job.status.phase);
  return condition != nullptr && condition->reason == kInvalidSpec &&
         job.status.observed_generation == job.metadata.generation;
}

}  // namespace

Controller::Controller(Dependencies dependencies, const Logger& log)
    : deps_(std::move(dependencies)),
      log_(log),
      progress_writes_(deps_.clock),
      conflicts_(deps_.client),
      live_reads_(kLiveReadBudget) {}

Controller::~Controller() { stop(); }

void Controller::start(int workers, std::string leading_since) {
  leading_since_ = std::move(leading_since);
  deps_.metrics->set_max_workers(workers);
  for (int i = 0; i < workers; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { run_worker(stop); });
  }
}

void Controller::stop() {
  deps_.queue->shut_down();
  for (std::jthread& worker : workers_) worker.request_stop();
  workers_.clear();
}

void Controller::run_worker(const std::stop_token& stop) {
  while (const std::optional<kube::ObjectKey> key = deps_.queue->get()) {
    deps_.metrics->increment_active_workers();
    const SteadyTime started = deps_.clock->steady();
    ReconcileResult result;
    try {
      result = reconcile(*key, stop);
    } catch (const std::exception& error) {  // an exception must not affect the other jobs
      log_.error("reconcile failed with an exception",
                 {{"namespace", key->namespace_name}, {"trainingjob", key->name}, {"error", error.what()}});
      deps_.metrics->count_panic();
      result = {ReconcileResult::Kind::kError};
    }
    const char* label = requeue(*key, result);
    deps_.metrics->observe_reconcile(label, deps_.clock->steady() - started);
    deps_.queue->done(*key);
    deps_.metrics->decrement_active_workers();
  }
}

const char* Controller::requeue(const kube::ObjectKey& key, const ReconcileResult& result) {
  switch (result.kind) {
    case ReconcileResult::Kind::kSuccess:
      deps_.queue->forget(key);
      return "success";
    case ReconcileResult::Kind::kError:
      if (result.after.count() > 0) {
        deps_.queue->add_after(key, result.after);
      } else {
        deps_.queue->add_rate_limited(key);
      }
      return "error";
    case ReconcileResult::Kind::kRequeue:
      deps_.queue->add_rate_limited(key);
      return "requeue";
    case ReconcileResult::Kind::kRequeueAfter:
      deps_.queue->forget(key);
      deps_.queue->add_after(key, result.after);
      return "requeue_after";
  }
  return "";
}

Controller::ReconcileResult Controller::reconcile(const kube::ObjectKey& key, const std::stop_token& stop) {
  std::shared_ptr<const Job> job = deps_.cache->job(key);
  const bool is_first_reconcile = track(key, job.get());
  if (job == nullptr) {
    // The delay until its deadline or removal can be decades.
    deps_.queue->cancel_delayed(key);
    if (deps_.cache->job(key) != nullptr) deps_.queue->add(key);  // it was created again meanwhile
    return {};
  }
  if (deps_.cache->is_incomplete(key.namespace_name))
    return {ReconcileResult::Kind::kRequeueAfter, kIncompleteCacheDelay};
  const bool is_fresh =
      deps_.own_writes->is_cache_fresh(job->metadata.uid, [&](ResourceKind kind, const std::string& version) {
        return deps_.cache->has_seen(kind, key.namespace_name, version);
      });
  if (!is_fresh) return {ReconcileResult::Kind::kRequeueAfter, kStaleCacheDelay};

  if (needs_full_spec(*job)) {
    if (!is_first_reconcile && is_reported_invalid(*job)) {
      // Without a new spec, only the deadline changes such a job.
      const std::optional<SystemTime> end = deadline(*job);
      if (!end) return {};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end - deps_.clock->now());
      if (left.count() > 0) return {ReconcileResult::Kind::kRequeueAfter, left};
    }
    ReconcileResult result;
    job = read_full_job(*job, result);
    if (job == nullptr) return result;
  }

  const Plan plan = make_plan(key, *job, is_first_reconcile);
  const bool only_progress = is_progress_update(plan, job->status);
  const Logger log =
      log_.with({{"namespace", key.namespace_name}, {"trainingjob", key.name}, {"uid", job->metadata.uid}});
  log.write(
      plan.actions.empty() || only_progress ? LogLevel::kDebug : LogLevel::kInfo, plan.reason,
      {{"verdict", to_string(plan.state)}, {"actions", plan.actions.size()}, {"phase", to_string(job->status.phase)}});
  if (only_progress) {
    if (const auto delay = progress_writes_.time_until_turn(key)) {
      set_rejection(job->metadata.uid, "");
      const std::chrono::milliseconds longest = plan.requeue_after.value_or(std::chrono::hours(1));
      return {ReconcileResult::Kind::kRequeueAfter, std::min(*delay, longest)};
    }
  }
  return execute(key, *job, plan, stop);
}

Controller::ReconcileResult Controller::execute(const kube::ObjectKey& key, const Job& job, const Plan& plan,
                                                const std::stop_token& stop) {
  const auto on_done = [&](const Action& action) {
    deps_.queue->report_progress(key);
    const auto* patch = std::get_if<PatchStatus>(&action);
    if (patch == nullptr) return;
    deps_.metrics->observe_status_change(job, patch->status);
    progress_writes_.forget(key);
  };
  const SteadyTime started = deps_.clock->steady();
  const auto should_yield = [&] { return deps_.clock->steady() - started >= kTimeSlice && deps_.queue->depth() > 0; };
  if (const auto interruption = deps_.executor->execute(job, plan.actions, on_done, stop, should_yield)) {
    return handle(job, *interruption);
  }
  set_rejection(job.metadata.uid, "");
  if (plan.requeue_after) return {ReconcileResult::Kind::kRequeueAfter, *plan.requeue_after};
  return {};
}

Controller::ReconcileResult Controller::handle(const Job& job, const Interruption& interruption) {
  using Reason = Interruption::Reason;
  const Logger log = log_.with({{"namespace", job.metadata.namespace_name},
                                {"trainingjob", job.metadata.name},
                                {"action", interruption.action}});
  switch (interruption.reason) {
    case Reason::kJobDeleted:
    case Reason::kShutdown:
      return {};
    case Reason::kYield:
      log.debug("plan interrupted because other jobs wait for a worker");
      return {ReconcileResult::Kind::kRequeueAfter, kYieldDelay};
    case Reason::kStaleCache:
      log.debug("plan based on a stale cache; requeuing", {{"error", interruption.error.message}});
      return {ReconcileResult::Kind::kRequeue};
    case Reason::kNameConflict:
      log.info("the name is taken by an object of another owner, or by one without the job's label");
      conflicts_.record(job.metadata.uid, {interruption.conflicting_kind, interruption.conflicting_key});
      return {ReconcileResult::Kind::kRequeue};
    case Reason::kApiError:
      break;
  }
  const kube::ApiError& failure = interruption.error;
  if (interruption.action.starts_with("create pod ")) {
    const auto problem = [&] {
      const std::unique_lock<std::mutex> lock = deps_.executor->lock_if_large(job.spec);
      return explain_invalid_pod(with_launcher_decision(job, deps_.launcher_image), failure.status, failure.message);
    }();
    if (problem) {
      log.warn("the API server rejects the pods of the job", {{"error", *problem}, {"status", failure.status}});
      set_template_error(job, *problem);
      // The next plan fails the job, or tries again if the template was accepted before.
      if (job.status.attempt > 0 && deps_.queue->failures({job.metadata.namespace_name, job.metadata.name}) == 0)
        emit_failed_create(job, interruption.action, *problem);
      return {ReconcileResult::Kind::kRequeue};
    }
  }
  const std::string error = sanitize_line(failure.message);  // admission webhooks can put any text into it
  log.warn("API call failed; retrying",
           {{"error", error}, {"status", failure.status}, {"reason", sanitize_line(failure.reason)}});
  const kube::ObjectKey key{job.metadata.namespace_name, job.metadata.name};
  const auto failures = static_cast<int>(deps_.queue->failures(key));
  const bool is_reported = is_rejection(failure) || (failure.status != 0 && failures >= kReportedFailures);
  const bool is_rejected = is_reported && interruption.action.starts_with("create");
  if (is_rejected) set_rejection(job.metadata.uid, error);
  if (is_rejected && failures == (is_rejection(failure) ? 0 : kReportedFailures)) {
    emit_failed_create(job, interruption.action, error);
  }
  if (failure.retry_after)
    return {ReconcileResult::Kind::kError, std::min<std::chrono::seconds>(*failure.retry_after, kMaxRetryDelay)};
  return {ReconcileResult::Kind::kError};
}

void Controller::emit_failed_create(const Job& job, const std::string& action, const std::string& error) {
  deps_.executor->emit(job, {.type = EmitEvent::Type::kWarning,
                             .reason = "FailedCreate",
                             .action = "Retry",
                             .message = fmt::format("cannot {}: {}", action, error),
                             .pod = ""});
}

bool Controller::track(const kube::ObjectKey& key, const Job* job) {
  const std::lock_guard lock(mutex_);
  const auto known = known_uids_.find(key);
  const bool is_replaced = known != known_uids_.end() && (job == nullptr || job->metadata.uid != known->second);
  if (is_replaced) {
    forget(key, known->second);
    known_uids_.erase(known);
  }
  return job != nullptr && known_uids_.emplace(key, job->metadata.uid).second;
}

void Controller::forget(const kube::ObjectKey& key, const std::string& job_uid) {
  deps_.own_writes->forget(job_uid);
  conflicts_.forget(job_uid);
  rejections_.erase(job_uid);
  template_errors_.erase(job_uid);
  deps_.poller->forget(key);
  deps_.stalls->forget(key);
  progress_writes_.forget(key);
}

// No decision about a job that is being deleted, or that is suspended and has no pods, depends on the trimmed parts.
bool Controller::needs_full_spec(const Job& job) const {
  if (!job.report.is_trimmed || job.metadata.deletion_timestamp) return false;
  return !job.spec.suspend || !deps_.cache->pods_of({job.metadata.namespace_name, job.metadata.name}).empty();
}

// Reads a job whose spec does not fit into the cache. If it returns null, `result` is the result of the reconcile.
std::shared_ptr<const Job> Controller::read_full_job(const Job& trimmed, ReconcileResult& result) {
  const kube::ObjectKey key{trimmed.metadata.namespace_name, trimmed.metadata.name};
  const size_t kib = trimmed.report.trimmed_kib + kKibOutsideSpec;
  const ByteBudget::Reservation reservation = live_reads_.acquire(kib * 1024 * kCopiesOfSpec);
  deps_.metrics->count_trimmed_job_read();
  const auto response = deps_.client.get(resource_of(ResourceKind::kJob), key, {});
  if (!response) {
    if (response.error().kind == ErrorKind::kNotFound) return nullptr;  // the informer is about to remove it
    log_.warn("failed to read a job; retrying", {{"namespace", key.namespace_name},
                                                 {"trainingjob", key.name},
                                                 {"error", sanitize_line(response.error().message)},
                                                 {"status", response.error().status}});
    result = {ReconcileResult::Kind::kError};
    return nullptr;
  }
  const Result<nlohmann::json> object = job_fields().parse(*response);
  std::shared_ptr<const Job> job = object ? std::make_shared<const Job>(project_job(*object)) : nullptr;
  // If the object has become unreadable or another one, the cache is about to be updated.
  if (job == nullptr || job->metadata.uid != trimmed.metadata.uid) {
    result = {ReconcileResult::Kind::kRequeueAfter, kStaleCacheDelay};
    return nullptr;
  }
  return job;
}

// Observed is freed on return, because executing a plan for thousands of pods may take minutes.
Plan Controller::make_plan(const kube::ObjectKey& key, const Job& job, bool is_first_reconcile) {
  const Observed observed = observe(key, job, is_first_reconcile);
  update_polling(key, observed);
  const std::unique_lock<std::mutex> lock = deps_.executor->lock_if_large(job.spec);
  return deps_.reconciler(observed);
}

Observed Controller::observe(const kube::ObjectKey& key, const Job& job, bool is_first_reconcile) {
  Observed observed;
  observed.job = job;
  observed.untouched = is_first_reconcile && !leading_since_.empty() &&
                       kube::compare_resource_versions(job.metadata.resource_version, leading_since_) > 0;
  observed.pods = deps_.cache->pods_of(key);
  observed.node_warnings = deps_.cache->node_warnings(observed.pods);
  observed.are_node_warnings_unknown = !deps_.cache->has_node_warnings();
  observed.services = deps_.cache->services_of(key);
  observed.network_policies = deps_.cache->network_policies_of(key);
  // Only Kueue's users pay for it.
  if (may_have_queue(job)) observed.workloads = deps_.cache->workloads_of(key, observed.workloads_error);
  deps_.cache->add_pod_groups(key, observed);
  if (may_apply_profile(job)) deps_.cache->add_profile(observed);
  observed.metrics_peers = deps_.metrics_peers;
  observed.launcher_image = deps_.launcher_image;
  observed.accelerators_per_pod = deps_.cache->accelerators_per_pod(key);
  if (deps_.pending_timeout_seconds > 0) observed.pending_timeout_seconds = deps_.pending_timeout_seconds;
  observed.now = deps_.clock->now();
  RankProbe probe = deps_.poller->latest(key, job.metadata.uid);
  observed.progress = std::move(probe.last_status);
  observed.launcher = std::move(probe.launcher);
  observed.last_poll = probe.last_poll;
  observed.step_received_at = probe.step_received_at;
  observed.progress_sent_at = probe.status_sent_at;
  observed.highest_reported = probe.highest;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = rejections_.find(job.metadata.uid); it != rejections_.end()) observed.last_error = it->second;
    if (const auto it = template_errors_.find(job.metadata.uid);
        it != template_errors_.end() && it->second.concerns(job))
      observed.template_error = it->second.message;
  }
  conflicts_.add_to(observed);
  add_stall_reports(key, observed);
  return observed;
}

// Requests the reports of the nodes of a job that is about to become Stalled.
void Controller::add_stall_reports(const kube::ObjectKey& key, Observed& observed) {
  observed.stall_reports.reset();
  const std::optional<SystemTime> since = stall_to_explain(observed);
  if (!since) return;
  const Membership members = classify_objects(observed);
  Stall stall{.uid = observed.job.metadata.uid,
              .since = *since,
              .port = metrics_port(observed.job),
              .ranks_per_node = observed.job.spec.processes_per_node};
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    if (has_left_group(members, rank)) continue;
    if (pod != nullptr && pod->phase == PodPhase::kRunning && !pod->pod_ip.empty() && !has_ended(*pod))
      stall.nodes.push_back({static_cast<int>(rank), pod->pod_ip});
  }
  observed.stall_reports = deps_.stalls->reports(key, stall);
}

void Controller::update_polling(const kube::ObjectKey& key, const Observed& observed) {
  if (observed.job.status.phase != api::Phase::kRunning) deps_.stalls->forget(key);
  if (is_terminal(observed.job.status.phase)) {
    deps_.poller->forget(key);
  } else if (const Pod* pod = progress_pod(classify_objects(observed))) {
    deps_.poller->watch(key, observed.job.metadata.uid, pod->pod_ip, metrics_port(observed.job),
                        checkpoint_request(observed.job.status));
  } else {
    deps_.poller->pause(key);
  }
}

void Controller::set_template_error(const Job& job, const std::string& error) {
  const std::lock_guard lock(mutex_);
  const api::AppliedProfile profile = job.status.profile.value_or(api::AppliedProfile{});
  template_errors_[job.metadata.uid] = {job.metadata.generation, profile.uid, profile.generation, error};
}

bool Controller::TemplateError::concerns(const Job& job) const {
  const api::AppliedProfile profile = job.status.profile.value_or(api::AppliedProfile{});
  return generation == job.metadata.generation && profile_uid == profile.uid &&
         profile_generation == profile.generation;
}

void Controller::set_rejection(const std::string& job_uid, const std::string& error) {
  const std::lock_guard lock(mutex_);
  if (error.empty()) {
    rejections_.erase(job_uid);
  } else {
    rejections_[job_uid] = error;
  }
}

}  // namespace oarlock::control
