#include "operator/shell/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "operator/core/desired.h"
#include "operator/core/membership.h"
#include "operator/core/policy.h"
#include "operator/core/status.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using ErrorKind = kube::ApiError::Kind;

// While the cache lags behind our own writes its events bring the key back; this is for the case that none comes.
constexpr auto kLookAgain = std::chrono::seconds(1);

// The longest time between two tries of a failed call, whatever the API server's Retry-After: as the Job controller's.
// After a quota has been raised a job starts within this time.
constexpr std::chrono::seconds kLongestRetry{60};

// A plan for thousands of pods takes minutes. Where other jobs wait for a worker it is left after this time, and what
// remains is planned again at the job's next turn: else a few large jobs would keep all workers from the others.
constexpr auto kTurn = std::chrono::seconds(5);
constexpr std::chrono::milliseconds kYieldPause{1};

// The API server does not allow the objects to be created: reported in an event and in the job's condition.
bool is_refusal(const kube::ApiError& error) {
  return error.kind == ErrorKind::kForbidden || error.kind == ErrorKind::kInvalid;
}

// The plan only writes that the job has progressed: it can wait, and it is not worth a line of the log.
bool is_only_progress(const Plan& plan, const api::Status& present) {
  const auto* patch = plan.actions.size() == 1 ? std::get_if<PatchStatus>(&plan.actions.front()) : nullptr;
  if (patch == nullptr || patch->status.progress == present.progress) return false;
  api::Status next = patch->status;
  next.progress = present.progress;
  return next == present;
}

// Of the answers to reads of trimmed jobs that are in memory at one time. Answer, parser and job take about eight times
// the size of the spec.
constexpr size_t kBytesOfReads = 24u << 20;
constexpr size_t kCopiesOfRead = 8;
constexpr size_t kKibBesideSpec = 32;

// The status says that this spec is invalid: until the spec changes there is nothing to decide.
bool is_rejected(const Job& job) {
  const api::Condition* condition = find_condition(job.status, job.status.phase);
  return condition != nullptr && condition->reason == kInvalidSpec &&
         job.status.observed_generation == job.metadata.generation;
}

template <typename T>
void put_in(std::vector<T>& objects, T object) {
  std::erase_if(objects, [&](const T& other) { return other.name == object.name; });
  objects.push_back(std::move(object));
}

// Absent: the text cannot be read.
template <typename T>
std::optional<T> read_object(const kube::FieldFilter& fields, const std::string& text,
                             oarlock::Result<T> (*project)(const nlohmann::json&)) {
  const oarlock::Result<nlohmann::json> object = fields.parse(text);
  if (!object) return std::nullopt;
  oarlock::Result<T> projected = project(*object);
  return projected ? std::optional<T>(*std::move(projected)) : std::nullopt;
}

}  // namespace

Controller::Controller(Parts parts, const Logger& log)
    : parts_(std::move(parts)), log_(log), budget_(parts_.clock), live_reads_(kBytesOfReads) {}

Controller::~Controller() { stop(); }

void Controller::start(int workers, std::string since) {
  since_ = std::move(since);
  parts_.metrics->set_workers(workers);
  for (int i = 0; i < workers; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

void Controller::stop() {
  parts_.queue->shut_down();
  for (std::jthread& worker : workers_) worker.request_stop();
  workers_.clear();
}

void Controller::work(const std::stop_token& stop) {
  while (const std::optional<kube::ObjectKey> key = parts_.queue->get()) {
    parts_.metrics->worker_busy(true);
    const SteadyTime started = parts_.clock->steady();
    Done done;
    try {
      done = reconcile(*key, stop);
    } catch (const std::exception& error) {  // the boundary of a reconcile: one broken job must not stop the others
      log_.error("a reconcile failed",
                 {{"namespace", key->name_space}, {"trainingjob", key->name}, {"error", error.what()}});
      parts_.metrics->panicked();
      done = {Result::kError, std::chrono::milliseconds(0)};
    }
    const char* result = "success";
    switch (done.result) {
      case Result::kSuccess:
        parts_.queue->forget(*key);
        break;
      case Result::kError:
        result = "error";
        if (done.after.count() > 0) {
          parts_.queue->add_after(*key, done.after);
        } else {
          parts_.queue->add_rate_limited(*key);
        }
        break;
      case Result::kRequeue:
        result = "requeue";
        parts_.queue->add_rate_limited(*key);
        break;
      case Result::kRequeueAfter:
        result = "requeue_after";
        parts_.queue->forget(*key);
        parts_.queue->add_after(*key, done.after);
        break;
    }
    parts_.metrics->reconciled(result, parts_.clock->steady() - started);
    parts_.queue->done(*key);
    parts_.metrics->worker_busy(false);
  }
}

void Controller::add_foreign_objects(const std::string& job_uid, Observed& observed) {
  for (const Foreign& foreign : foreign_of(job_uid)) {
    const auto answer = parts_.client.get(resource_of(foreign.kind), foreign.key, {});
    if (!answer) {
      if (answer.error().kind == ErrorKind::kNotFound) drop_foreign(job_uid, foreign);
      continue;
    }
    switch (foreign.kind) {
      case Kind::kPod:
        if (auto pod = read_object(pod_fields(), *answer, project_pod)) put_in(observed.pods, std::move(pod->pod));
        break;
      case Kind::kService:
        if (auto service = read_object(service_fields(), *answer, project_service))
          put_in(observed.services, std::move(service->service));
        break;
      case Kind::kNetworkPolicy:
        if (auto policy = read_object(network_policy_fields(), *answer, project_network_policy))
          put_in(observed.network_policies, std::move(policy->network_policy));
        break;
      case Kind::kJob:  // no object of another kind can have a job's place
        break;
    }
  }
}

Observed Controller::observe(const kube::ObjectKey& key, const Job& job, bool is_first_look) {
  Observed observed;
  observed.job = job;
  observed.untouched =
      is_first_look && !since_.empty() && kube::compare_resource_versions(job.metadata.resource_version, since_) > 0;
  observed.pods = parts_.cache->pods_of(key);
  observed.services = parts_.cache->services_of(key);
  observed.network_policies = parts_.cache->network_policies_of(key);
  observed.metrics_peers = parts_.metrics_peers;
  observed.now = parts_.clock->now();
  RankProbe probe = parts_.poller->latest(key, job.metadata.uid);
  observed.progress = std::move(probe.last_status);
  observed.asked = probe.last_poll;
  observed.step_received_at = probe.step_received_at;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = refusals_.find(job.metadata.uid); it != refusals_.end()) observed.last_error = it->second;
  }
  add_foreign_objects(job.metadata.uid, observed);
  return observed;
}

void Controller::follow_progress(const kube::ObjectKey& key, const Observed& observed) {
  if (is_terminal(observed.job.status.phase)) {
    parts_.poller->forget(key);
  } else if (const Pod* pod = progress_pod(split(observed))) {
    parts_.poller->watch(key, observed.job.metadata.uid, pod->pod_ip, metrics_port(observed.job));
  } else {
    parts_.poller->pause(key);
  }
}

// The state is read here and freed on return: a plan for thousands of pods may take minutes to carry out.
Plan Controller::plan_for(const kube::ObjectKey& key, const Job& job, bool is_first_look) {
  const Observed observed = observe(key, job, is_first_look);
  follow_progress(key, observed);
  // As a tree a template takes many times its size, so large ones are parsed one at a time.
  const std::unique_lock<std::mutex> lock = parts_.executor->lock_if_large(job.spec);
  return parts_.decide(observed);
}

// No decision about a job that is being deleted, or that is suspended and has no pods, depends on the trimmed parts.
bool Controller::needs_whole_spec(const Job& job) const {
  if (!job.report.is_trimmed || job.metadata.deletion_timestamp) return false;
  return !job.spec.suspend || !parts_.cache->pods_of({job.metadata.name_space, job.metadata.name}).empty();
}

// Reads a job whose spec does not fit into the cache. Null: `done` is the result of the reconcile.
std::shared_ptr<const Job> Controller::read_whole(const Job& trimmed, Done& done) {
  const kube::ObjectKey key{trimmed.metadata.name_space, trimmed.metadata.name};
  const size_t kib = trimmed.report.trimmed_kib + kKibBesideSpec;
  const ByteBudget::Share share = live_reads_.take(kib * 1024 * kCopiesOfRead);
  parts_.metrics->read_trimmed_job();
  const auto answer = parts_.client.get(resource_of(Kind::kJob), key, {});
  if (!answer) {
    if (answer.error().kind == ErrorKind::kNotFound) return nullptr;  // its deletion is about to be seen
    log_.warn("a job could not be read; trying again", {{"namespace", key.name_space},
                                                        {"trainingjob", key.name},
                                                        {"error", one_line(answer.error().message)},
                                                        {"status", answer.error().status}});
    done = {Result::kError, {}};
    return nullptr;
  }
  const oarlock::Result<nlohmann::json> object = job_fields().parse(*answer);
  // An object that has become unreadable or another one: the cache is about to see it.
  std::shared_ptr<const Job> job = object ? std::make_shared<const Job>(project_job(*object)) : nullptr;
  if (job == nullptr || job->metadata.uid != trimmed.metadata.uid) {
    done = {Result::kRequeueAfter, kLookAgain};
    return nullptr;
  }
  return job;
}

Controller::Done Controller::reconcile(const kube::ObjectKey& key, const std::stop_token& stop) {
  std::shared_ptr<const Job> job = parts_.cache->job(key);
  bool is_first_look = false;
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_uids_.find(key);
    // The job has gone, or another one of its name has come.
    if (known != known_uids_.end() && (job == nullptr || job->metadata.uid != known->second)) {
      parts_.own_writes->forget(known->second);
      foreign_.erase(known->second);
      refusals_.erase(known->second);
      known_uids_.erase(known);
      parts_.poller->forget(key);
      budget_.forget(key);
    }
    if (job == nullptr) return {};
    is_first_look = known_uids_.emplace(key, job->metadata.uid).second;
  }
  const bool up_to_date = parts_.own_writes->seen(job->metadata.uid, [&](Kind kind, const std::string& version) {
    return parts_.cache->has_seen(kind, key.name_space, version);
  });
  if (!up_to_date) return {Result::kRequeueAfter, kLookAgain};

  if (needs_whole_spec(*job)) {
    if (!is_first_look && is_rejected(*job)) return {};
    Done done;
    job = read_whole(*job, done);
    if (job == nullptr) return done;
  }

  const Plan plan = plan_for(key, *job, is_first_look);
  const Logger log = log_.with({{"namespace", key.name_space}, {"trainingjob", key.name}, {"uid", job->metadata.uid}});
  const bool only_progress = is_only_progress(plan, job->status);
  log.write(plan.actions.empty() || only_progress ? LogLevel::kDebug : LogLevel::kInfo, plan.reason,
            {{"verdict", to_string(plan.verdict)},
             {"actions", plan.actions.size()},
             {"phase", to_string(job->status.phase)}});
  if (only_progress) {
    if (const auto turn = budget_.time_until_turn(key)) {
      remember_refusal(job->metadata.uid, "");
      const std::chrono::milliseconds longest = plan.requeue_after.value_or(std::chrono::hours(1));
      return {Result::kRequeueAfter, std::min(*turn, longest)};
    }
  }
  const auto on_done = [&](const Action& action) {
    parts_.queue->progressed(key);
    const auto* patch = std::get_if<PatchStatus>(&action);
    if (patch == nullptr) return;
    parts_.metrics->status_changed(*job, patch->status);
    budget_.forget(key);
  };
  const SteadyTime started = parts_.clock->steady();
  const auto should_yield = [&] {
    return parts_.clock->steady() - started >= kTurn && parts_.queue->depth().normal > 0;
  };
  if (const std::optional<Stop> why = parts_.executor->execute(*job, plan.actions, on_done, stop, should_yield)) {
    return stopped(*job, *why);
  }
  remember_refusal(job->metadata.uid, "");
  if (plan.requeue_after) return {Result::kRequeueAfter, *plan.requeue_after};
  return {};
}

Controller::Done Controller::stopped(const Job& job, const Stop& why) {
  const Logger log =
      log_.with({{"namespace", job.metadata.name_space}, {"trainingjob", job.metadata.name}, {"action", why.action}});
  switch (why.kind) {
    case Stop::Kind::kGone:
    case Stop::Kind::kEnding:
      return {};
    case Stop::Kind::kYielded:
      log.debug("other jobs wait for the worker; the rest of the plan follows");
      return {Result::kRequeueAfter, kYieldPause};
    case Stop::Kind::kStale:
      log.debug("the plan was made from an old view; looking again", {{"error", why.error.message}});
      return {Result::kRequeue, {}};
    case Stop::Kind::kForeign:
      log.info("the name belongs to an object of somebody else");
      add_foreign(job.metadata.uid, {why.foreign_kind, why.foreign});
      return {Result::kRequeue, {}};
    case Stop::Kind::kFailed:
      break;
  }
  // Admission webhooks write into it what they like.
  const std::string error = one_line(why.error.message);
  log.warn("an API call failed; trying again",
           {{"error", error}, {"status", why.error.status}, {"reason", one_line(why.error.reason)}});
  const kube::ObjectKey key{job.metadata.name_space, job.metadata.name};
  const bool is_refused = is_refusal(why.error) && why.action.starts_with("create");
  if (is_refused) remember_refusal(job.metadata.uid, error);
  if (is_refused && parts_.queue->failures(key) == 0) {
    parts_.executor->emit(job, {.type = EmitEvent::Type::kWarning,
                                .reason = "FailedCreate",
                                .action = "Retry",
                                .message = fmt::format("cannot {}: {}", why.action, error),
                                .pod = ""});
  }
  if (why.error.retry_after)
    return {Result::kError, std::min<std::chrono::seconds>(*why.error.retry_after, kLongestRetry)};
  return {Result::kError, {}};
}

void Controller::remember_refusal(const std::string& job_uid, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (what.empty()) {
    refusals_.erase(job_uid);
  } else {
    refusals_[job_uid] = what;
  }
}

std::vector<Controller::Foreign> Controller::foreign_of(const std::string& job_uid) const {
  const std::lock_guard lock(mutex_);
  const auto it = foreign_.find(job_uid);
  return it == foreign_.end() ? std::vector<Foreign>() : std::vector<Foreign>(it->second.begin(), it->second.end());
}

void Controller::add_foreign(const std::string& job_uid, Foreign foreign) {
  const std::lock_guard lock(mutex_);
  foreign_[job_uid].insert(std::move(foreign));
}

void Controller::drop_foreign(const std::string& job_uid, const Foreign& foreign) {
  const std::lock_guard lock(mutex_);
  if (const auto it = foreign_.find(job_uid); it != foreign_.end()) {
    it->second.erase(foreign);
    if (it->second.empty()) foreign_.erase(it);
  }
}

}  // namespace oarlock::control
