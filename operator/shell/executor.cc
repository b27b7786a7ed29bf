#include "operator/shell/executor.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>
#include <utility>

#include "api/codec.h"
#include "common/json_access.h"
#include "common/random.h"
#include "common/text.h"
#include "operator/core/bad_nodes.h"
#include "operator/core/gang.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using ErrorKind = kube::ApiErrorKind;
using Reason = Interruption::Reason;

// "pod", "networkpolicy"
std::string singular_of(ResourceKind kind) {
  const std::string plural = resource_of(kind).plural;
  return plural.ends_with("ies") ? plural.substr(0, plural.size() - 3) + "y" : plural.substr(0, plural.size() - 1);
}

std::string action_name(const char* verb, ResourceKind kind, const kube::ObjectKey& key) {
  return fmt::format("{} {} {}", verb, singular_of(kind), key.to_string());
}

Interruption interruption(Interruption::Reason reason, std::string action, kube::ApiError error = {}) {
  Interruption out;
  out.reason = reason;
  out.action = std::move(action);
  out.error = std::move(error);
  return out;
}

// The failure of a call for an object of the plan: the cache is stale if the object no longer exists or has changed.
Interruption interruption_by(std::string action, const kube::ApiError& error) {
  const bool is_stale = error.kind == ErrorKind::kNotFound || error.kind == ErrorKind::kConflict;
  return interruption(is_stale ? Reason::kStaleCache : Reason::kApiError, std::move(action), error);
}

// As interruption_by(), for the job itself.
Interruption interruption_by_job(std::string action, const kube::ApiError& error) {
  if (error.kind == ErrorKind::kNotFound) return interruption(Reason::kJobDeleted, std::move(action), error);
  return interruption_by(std::move(action), error);
}

// As if the API server had refused the action.
Interruption refusal(std::string action, std::string message) {
  kube::ApiError error;
  error.kind = ErrorKind::kForbidden;
  error.message = std::move(message);
  return interruption(Reason::kApiError, std::move(action), std::move(error));
}

// Whether an admission webhook has denied the request. It chooses the status code and the reason.
bool is_denial(const kube::ApiError& error) { return error.message.find("denied the request") != std::string::npos; }

Interruption name_conflict(std::string action, ResourceKind kind, const kube::ObjectKey& key) {
  Interruption out = interruption(Reason::kNameConflict, std::move(action));
  out.conflicting_kind = kind;
  out.conflicting_key = key;
  return out;
}

// Whether the object has the label by which the informers select it.
bool has_job_label(const std::string& object, const Job& job) {
  static const kube::FieldFilter kFields{R"(metadata.labels.oarlock\.dev/job-name)"};
  const auto json = kFields.parse(object);
  return json && text_at(member(member(*json, "metadata"), "labels"), kLabelJobName) == job.metadata.name;
}

// Whether both actions belong to the same batch: the same operation on different pods.
bool is_same_batch(const Action& first, const Action& next) {
  if (&first == &next) return true;
  if (const auto* create = std::get_if<CreatePod>(&first)) {
    const auto* other = std::get_if<CreatePod>(&next);
    return other != nullptr && other->attempt == create->attempt && other->nodes == create->nodes &&
           other->launchers == create->launchers && other->images == create->images &&
           other->admission == create->admission && other->gang == create->gang && other->avoided == create->avoided;
  }
  return std::holds_alternative<DeletePod>(first) && std::holds_alternative<DeletePod>(next);
}

// Adds the random key to the body of a Service. A Service that exists keeps its key: the operator never updates one.
std::string with_regroup_key(const std::string& body) {
  auto service = nlohmann::json::parse(body, nullptr, false);
  if (!service.is_object()) return body;
  std::array<unsigned char, 32> key{};
  fill_random(key);
  service["metadata"]["annotations"][kAnnotationRegroupKey] = to_hex(key);
  return dump_json(service);
}

}  // namespace

std::string derive_regroup_token(const std::string& key, const std::string& job_uid, int attempt) {
  const std::string text = fmt::format("{}/{}", job_uid, attempt);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), digest.data(), &size) == nullptr)
    throw std::runtime_error("SHA-256 is not available");
  return to_hex({digest.data(), size});
}

size_t run_slow_start_batches(size_t count, const std::function<bool(size_t)>& call) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> good = true;
  size_t end = 0;
  for (size_t batch = 1; end < count && good; batch *= 2) {
    const size_t begin = end;
    end = std::min(begin + batch, count);
    next = begin;
    const auto work = [&] {
      while (good) {
        const size_t i = next++;
        if (i >= end) return;
        if (!call(i)) good = false;
      }
    };
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < std::min(end - begin, kMaxParallelCalls); ++i) helpers.emplace_back(work);
    work();
  }
  return std::min<size_t>(next, end);
}

std::optional<Interruption> Executor::execute(const Job& job, const std::vector<Action>& actions,
                                              const std::function<void(const Action&)>& on_done,
                                              const std::stop_token& stop,
                                              const std::function<bool()>& should_yield) const {
  for (auto it = actions.begin(); it != actions.end();) {
    if (stop.stop_requested()) return interruption(Reason::kShutdown, "");
    const auto end = std::find_if_not(it, actions.end(), [&](const Action& next) { return is_same_batch(*it, next); });
    const std::span<const Action> batch(it, end);
    Outcome outcome;
    if (const auto* first = std::get_if<CreatePod>(&*it)) {
      std::optional<PodFactory> factory;
      if (Outcome failed = prepare(job, *first, factory)) return failed;
      outcome = run_batch(
          batch,
          [&](const Action& one) {
            return should_yield() ? interruption(Reason::kYield, "")
                                  : create_pod(job, *factory, std::get<CreatePod>(one));
          },
          on_done, stop);
    } else {
      const bool deletes_pods = std::holds_alternative<DeletePod>(*it);
      outcome = run_batch(
          batch,
          [&](const Action& one) -> Outcome {
            if (deletes_pods && should_yield()) return interruption(Reason::kYield, "");
            return std::visit([&](const auto& action) { return run(job, action); }, one);
          },
          on_done, stop);
    }
    if (outcome) return outcome;
    it = end;
  }
  return std::nullopt;
}

Executor::Outcome Executor::run_batch(std::span<const Action> actions,
                                      const std::function<Outcome(const Action&)>& run_one,
                                      const std::function<void(const Action&)>& on_done,
                                      const std::stop_token& stop) const {
  std::mutex mutex;
  size_t first_failed = actions.size();
  Outcome failure;
  run_slow_start_batches(actions.size(), [&](size_t i) {
    Outcome outcome = stop.stop_requested() ? interruption(Reason::kShutdown, "") : run_one(actions[i]);
    const std::lock_guard lock(mutex);
    if (!outcome) {
      on_done(actions[i]);
      return true;
    }
    if (i < first_failed) {
      first_failed = i;
      failure = std::move(outcome);
    }
    return false;
  });
  return failure;
}

Executor::Outcome Executor::run(const Job& job, const ConfirmJobUnchanged&) const {
  const kube::ObjectKey key{job.metadata.namespace_name, job.metadata.name};
  const std::string name = action_name("get", ResourceKind::kJob, key);
  const auto response = client_.get(resource_of(ResourceKind::kJob), key, {});
  if (!response) return interruption_by_job(name, response.error());
  const ObjectMetadata live = read_object_metadata(*response);
  if (live.uid != job.metadata.uid) return interruption(Reason::kJobDeleted, name);
  if (live.resource_version == job.metadata.resource_version) return std::nullopt;
  own_writes_->record(job.metadata.uid, ResourceKind::kJob, live.resource_version);
  return interruption(Reason::kStaleCache, name);
}

Executor::Outcome Executor::run(const Job& job, const ConfirmPodAbsent& action) const {
  const kube::ObjectKey key{job.metadata.namespace_name, action.name};
  const auto response = client_.get(kube::pods(), key, {});
  const std::string name = action_name("confirm the absence of", ResourceKind::kPod, key);
  if (!response) {
    if (response.error().kind == ErrorKind::kNotFound) return std::nullopt;
    return interruption(Reason::kApiError, name, response.error());
  }
  const ObjectMetadata live = read_object_metadata(*response);
  if (!action.except_uid.empty() && live.uid == action.except_uid) return std::nullopt;
  if (!has_job_label(*response, job)) return name_conflict(name, ResourceKind::kPod, key);
  own_writes_->record(job.metadata.uid, ResourceKind::kPod, live.resource_version);
  return interruption(Reason::kStaleCache, name);
}

Executor::Outcome Executor::create(const Job& job, ResourceKind kind, const std::string& name, std::string body) const {
  const kube::ObjectKey key{job.metadata.namespace_name, name};
  const std::string action = action_name("create", kind, key);
  // A field of the template with a typo must not be dropped, because it may be the one that requests the GPUs.
  const auto validation = kind == ResourceKind::kPod ? kube::FieldValidation::kStrict : kube::FieldValidation::kDefault;
  auto response =
      client_.create(resource_of(kind), key.namespace_name, std::move(body), {}, {.validation = validation});
  if (!response && response.error().kind == ErrorKind::kAlreadyExists && !is_denial(response.error())) {
    // Either this operator created the object and the response was lost, or it has another owner: the owner's uid
    // distinguishes the two. Without the label, the informer does not select even an own object.
    response = client_.get(resource_of(kind), key, {});
    if (!response && response.error().kind == ErrorKind::kNotFound) return interruption(Reason::kStaleCache, action);
    const bool is_cached =
        response && read_object_metadata(*response).owner_uid == job.metadata.uid && has_job_label(*response, job);
    if (response && !is_cached) return name_conflict(action, kind, key);
  }
  if (!response) return interruption(Reason::kApiError, action, response.error());
  return record(job, kind, *response);
}

Executor::Outcome Executor::record(const Job& job, ResourceKind kind, const std::string& object) const {
  own_writes_->record(job.metadata.uid, kind, read_object_metadata(object).resource_version);
  return std::nullopt;
}

Executor::Outcome Executor::create_or_refuse(const Job& job, ResourceKind kind, const char* kind_name,
                                             const std::string& name, std::string body) const {
  Outcome outcome = create(job, kind, name, std::move(body));
  if (!outcome || outcome->reason != Reason::kNameConflict) return outcome;
  return refusal(outcome->action,
                 fmt::format("{} {} exists, and does not belong to this job or does not have its label {}; delete it",
                             kind_name, outcome->conflicting_key.to_string(), kLabelJobName));
}

Executor::Outcome Executor::run(const Job& job, const CreateService& action) const {
  return create(job, ResourceKind::kService, action.name, with_regroup_key(action.body));
}

Executor::Outcome Executor::run(const Job& job, const CreateClaim& action) const {
  const kube::ObjectKey key{job.metadata.namespace_name, action.name};
  const std::string name = fmt::format("create persistentvolumeclaim {}", key.to_string());
  auto response = client_.get(kube::persistent_volume_claims(), key, {});
  if (!response && response.error().kind == ErrorKind::kNotFound) {
    if (Outcome rejected = try_pod(job, action)) return rejected;
    response = client_.create(kube::persistent_volume_claims(), key.namespace_name, action.body, {});
    if (response) return std::nullopt;
    if (response.error().kind == ErrorKind::kAlreadyExists) return interruption(Reason::kStaleCache, name);
  }
  if (!response) return interruption(Reason::kApiError, name, response.error());
  // Pods with a claim that is being deleted would wait for it forever.
  if (!read_object_metadata(*response).is_deleting) return std::nullopt;
  return refusal(name, fmt::format("PersistentVolumeClaim {} is being deleted; the pods are created once it is gone, "
                                   "which needs the end of all pods that mount it",
                                   action.name));
}

Executor::Outcome Executor::run(const Job& job, const CreateNetworkPolicy& action) const {
  return create(job, ResourceKind::kNetworkPolicy, action.name, action.body);
}

Executor::Outcome Executor::run(const Job& job, const ReplaceNetworkPolicy& action) const {
  const kube::ObjectKey key{job.metadata.namespace_name, action.name};
  const std::string name = action_name("replace", ResourceKind::kNetworkPolicy, key);
  const auto response = client_.replace(resource_of(ResourceKind::kNetworkPolicy), key, action.body, {});
  if (!response) return interruption_by(name, response.error());
  return record(job, ResourceKind::kNetworkPolicy, *response);
}

std::unique_lock<std::mutex> Executor::lock_if_large(const api::Spec& spec) const {
  if (spec.pod_template.size() <= kLargeTemplate) return {};
  return std::unique_lock(large_mutex_);
}

PodFactory Executor::make_factory(const Job& job, const CreatePod& pod, const RegroupSecret& secret) const {
  const std::unique_lock<std::mutex> lock = lock_if_large(job.spec);
  PodDefaults defaults = pod_defaults_;
  if (!pod.images.trainer.empty()) defaults.image = pod.images.trainer;
  return PodFactory(job, pod.attempt, pod.nodes, defaults, secret, pod.launchers, pod.images.launcher);
}

Executor::Outcome Executor::read_regroup_secret(const Job& job, const CreatePod& pod, RegroupSecret& secret) const {
  if (!needs_token(job, pod.nodes)) return std::nullopt;
  const kube::ObjectKey key{job.metadata.namespace_name, service_name(job)};
  const std::string name = action_name("get", ResourceKind::kService, key);
  const auto response = client_.get(resource_of(ResourceKind::kService), key, {});
  if (!response) return interruption_by(name, response.error());
  if (read_object_metadata(*response).owner_uid != job.metadata.uid)
    return name_conflict(name, ResourceKind::kService, key);
  const nlohmann::json object = parse_untrusted_json(*response, 4 << 20);
  const std::string regroup_key = text_at(member(member(object, "metadata"), "annotations"), kAnnotationRegroupKey);
  if (!regroup_key.empty())
    secret = {derive_regroup_token(regroup_key, job.metadata.uid, pod.attempt), regroup_key_id(regroup_key)};
  return std::nullopt;
}

Executor::Outcome Executor::create_pod(const Job& job, const PodFactory& factory, const CreatePod& action) const {
  constexpr size_t kCopies = 4;  // the body, the request, and the response with its parser
  const ByteBudget::Reservation reservation = in_flight_.acquire(factory.text_size() * kCopies);
  return create(job, ResourceKind::kPod, action.name, factory.text(action.node_rank, action.is_replacement));
}

Executor::Outcome Executor::try_pod(const Job& job, const CreateClaim& action) const {
  constexpr size_t kCopies = 4;                                       // as in create_pod()
  constexpr std::string_view kNoDryRun = "does not support dry run";  // an admission webhook with side effects
  const CreatePod pod{.name = pod_name(job, action.attempt, 0),
                      .attempt = action.attempt,
                      .nodes = job.group_nodes(),
                      .launchers = launcher_bounds(job),
                      .images = action.images};
  const PodFactory factory = make_factory(job, pod, placeholder_secret());
  const ByteBudget::Reservation reservation = in_flight_.acquire(factory.text_size() * kCopies);
  const auto response = client_.create(kube::pods(), job.metadata.namespace_name, factory.text(0), {},
                                       {.validation = kube::FieldValidation::kStrict, .dry_run = true});
  if (response || response.error().kind == ErrorKind::kAlreadyExists) return std::nullopt;
  const kube::ApiError& error = response.error();
  if (error.status == 400 && error.message.find(kNoDryRun) != std::string::npos) return std::nullopt;
  const kube::ObjectKey key{job.metadata.namespace_name, pod.name};
  return interruption(Reason::kApiError, action_name("create", ResourceKind::kPod, key), error);
}

Executor::Outcome Executor::run(const Job& job, const CreatePod& action) const {
  std::optional<PodFactory> factory;
  if (Outcome failed = prepare(job, action, factory)) return failed;
  return create_pod(job, *factory, action);
}

Executor::Outcome Executor::prepare(const Job& job, const CreatePod& pod, std::optional<PodFactory>& factory) const {
  RegroupSecret secret;
  if (Outcome failed = read_regroup_secret(job, pod, secret)) return failed;
  std::optional<Job> placed;
  if (Outcome failed = apply_admission(job, pod, placed)) return failed;
  if (pod.gang) {
    const std::unique_lock<std::mutex> lock = lock_if_large(job.spec);
    placed = with_gang(placed ? *placed : job, *pod.gang);
  }
  if (changes_template(job, pod.avoided)) {
    const std::unique_lock<std::mutex> lock = lock_if_large(job.spec);
    placed = with_avoided_nodes(placed ? *placed : job, pod.avoided);
  }
  factory.emplace(make_factory(placed ? *placed : job, pod, secret));
  return std::nullopt;
}

Executor::Outcome Executor::apply_admission(const Job& job, const CreatePod& pod, std::optional<Job>& placed) const {
  if (!pod.admission) return std::nullopt;
  const kube::ObjectKey key{job.metadata.namespace_name, pod.name};
  const std::string name = action_name("create", ResourceKind::kPod, key);
  if (!prebuilt_workload(job).empty()) {
    const PodFactory factory = make_factory(job, pod, {});
    const std::unique_lock<std::mutex> lock = lock_if_large(job.spec);
    const auto checked = kueue_.check_prebuilt(job, factory.pod(0));
    if (!checked) return interruption(Reason::kApiError, name, checked.error());
  }
  const std::unique_lock<std::mutex> lock = lock_if_large(job.spec);
  auto job_with_placement = kueue_.place(job, *pod.admission);
  if (!job_with_placement) return interruption(Reason::kApiError, name, job_with_placement.error());
  placed = *std::move(job_with_placement);
  return std::nullopt;
}

Executor::Outcome Executor::run(const Job& job, const CreatePodGroup& action) const {
  return create_or_refuse(job, pod_groups_of(action.api), "PodGroup", action.name, action.body);
}

Executor::Outcome Executor::run(const Job& job, const DeletePodGroup& action) const {
  return remove(job, pod_groups_of(action.api), action.name, {.uid = action.uid, .resource_version = ""});
}

Executor::Outcome Executor::run(const Job& job, const CreateWorkload& action) const {
  const kube::ObjectKey key{job.metadata.namespace_name, action.name};
  const CreatePod first{.name = pod_name(job, job.status.attempt, 0),
                        .attempt = job.status.attempt,
                        .nodes = action.nodes,
                        .images = {.trainer = "", .launcher = launcher_image(job)}};
  const PodFactory factory = make_factory(job, first, {});
  const auto body = [&] {
    const std::unique_lock<std::mutex> lock = lock_if_large(job.spec);
    return kueue_.workload(job, action, factory.pod(0));
  }();
  if (!body) return interruption(Reason::kApiError, action_name("create", ResourceKind::kWorkload, key), body.error());
  return create_or_refuse(job, ResourceKind::kWorkload, "Workload", action.name, *body);
}

Executor::Outcome Executor::run(const Job& job, const ConfirmWorkloadUnchanged& action) const {
  const kube::ObjectKey key{job.metadata.namespace_name, action.name};
  const std::string name = action_name("get", ResourceKind::kWorkload, key);
  const auto response = client_.get(resource_of(ResourceKind::kWorkload), key, {});
  if (!response) return interruption_by(name, response.error());
  const ObjectMetadata live = read_object_metadata(*response);
  if (live.resource_version == action.resource_version) return std::nullopt;
  own_writes_->record(job.metadata.uid, ResourceKind::kWorkload, live.resource_version);
  return interruption(Reason::kStaleCache, name);
}

Executor::Outcome Executor::run(const Job& job, const UpdateWorkload& action) const {
  const kube::ObjectKey key{job.metadata.namespace_name, action.name};
  const std::string name = action_name("patch the status of", ResourceKind::kWorkload, key);
  const auto response = kueue_.update(key, action);
  if (response) return record(job, ResourceKind::kWorkload, *response);
  // While Kueue's webhooks are down, an admitted job must still restart. A later plan reports the readiness again.
  using Change = UpdateWorkload::Change;
  Interruption failed = interruption_by(name, response.error());
  if (failed.reason == Reason::kStaleCache || (action.change != Change::kReady && action.change != Change::kNotReady))
    return failed;
  log_.warn("cannot report to Kueue whether the pods are ready; retrying",
            {{"namespace", job.metadata.namespace_name},
             {"workload", action.name},
             {"error", sanitize_line(response.error().message)}});
  return std::nullopt;
}

Executor::Outcome Executor::run(const Job& job, const DeleteWorkload& action) const {
  log_.info("deleting a Workload", {{"namespace", job.metadata.namespace_name}, {"workload", action.name}});
  return remove(job, ResourceKind::kWorkload, action.name,
                {.uid = action.uid, .resource_version = action.resource_version});
}

Executor::Outcome Executor::remove(const Job& job, ResourceKind kind, const std::string& name,
                                   const kube::Preconditions& preconditions) const {
  const kube::ObjectKey key{job.metadata.namespace_name, name};
  const std::string action = action_name("delete", kind, key);
  const auto response = client_.remove(resource_of(kind), key, preconditions, {});
  if (response) return record(job, kind, *response);
  if (response.error().kind == ErrorKind::kNotFound) return std::nullopt;
  if (response.error().kind != ErrorKind::kConflict) return interruption(Reason::kApiError, action, response.error());
  if (preconditions.resource_version.empty()) return std::nullopt;
  // Find out which of the two preconditions failed. If the uid differs, the object to delete does not exist anymore.
  const auto live = client_.get(resource_of(kind), key, {});
  if (!live && live.error().kind != ErrorKind::kNotFound) return interruption(Reason::kApiError, action, live.error());
  if (!live || read_object_metadata(*live).uid != preconditions.uid) return std::nullopt;
  return interruption(Reason::kStaleCache, action, response.error());
}

Executor::Outcome Executor::run(const Job& job, const DeletePod& action) const {
  log_.info("deleting a pod",
            {{"namespace", job.metadata.namespace_name}, {"pod", action.name}, {"reason", action.reason}});
  return remove(job, ResourceKind::kPod, action.name, {.uid = action.uid, .resource_version = action.resource_version});
}

Executor::Outcome Executor::run(const Job& job, const DeleteService& action) const {
  return remove(job, ResourceKind::kService, action.name, {.uid = action.uid, .resource_version = ""});
}

Executor::Outcome Executor::run(const Job& job, const DeleteNetworkPolicy& action) const {
  return remove(job, ResourceKind::kNetworkPolicy, action.name, {.uid = action.uid, .resource_version = ""});
}

Executor::Outcome Executor::run(const Job& job, const DeleteJob& action) const {
  log_.info("deleting a finished job", {{"namespace", job.metadata.namespace_name}, {"trainingjob", action.name}});
  return remove(job, ResourceKind::kJob, action.name, {.uid = action.uid, .resource_version = action.resource_version});
}

Executor::Outcome Executor::run(const Job& job, const PatchStatus& action) const {
  const kube::ObjectKey key{job.metadata.namespace_name, job.metadata.name};
  const std::string name = action_name("patch the status of", ResourceKind::kJob, key);
  const nlohmann::json patch = action.conditions_only ? api::conditions_patch(job.metadata, action.status.conditions)
                                                      : api::status_patch(job.metadata, action.status);
  const std::string body = dump_json(patch);
  const auto response = client_.patch_status(resource_of(ResourceKind::kJob), key, body, {});
  if (!response) return interruption_by_job(name, response.error());
  return record(job, ResourceKind::kJob, *response);
}

Executor::Outcome Executor::run(const Job& job, const EmitEvent& action) const {
  emit(job, action);
  return std::nullopt;
}

}  // namespace oarlock::control
