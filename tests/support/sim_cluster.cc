#include "tests/support/sim_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "api/codec.h"
#include "operator/core/desired.h"
#include "operator/core/membership.h"
#include "operator/core/profile.h"
#include "operator/core/queue.h"
#include "operator/core/workload.h"
#include "tests/support/builders.h"

namespace oarlock::test {

using namespace control;  // NOLINT: this file is about its types

std::string version_of(const Workload& workload) {
  return fmt::format("{}{}{}{}{}{}{}{}", workload.nodes, workload.admission.nodes, workload.has_quota,
                     workload.admitted, workload.evicted, workload.requeued, workload.finished, workload.pods_ready);
}

// Of the pods: with the operator's margin, shorter than a tick of the model.
constexpr int kGraceSeconds = 1;

SimCluster::SimCluster(Job job) : job_(std::move(job)), now_(at_second(60)) {
  job_.metadata.resource_version = next_version();
}

SimCluster::SimCluster(Job job, Objects objects, SystemTime now)
    : job_(std::move(job)), objects_(std::move(objects)), now_(now) {}

Outcome SimCluster::apply(const Action& action, const Job& job) {
  if (const auto* event = std::get_if<EmitEvent>(&action)) {
    events_.push_back(*event);
    return Outcome::kDone;
  }
  ++requests_;
  if (std::holds_alternative<ConfirmJobUnchanged>(action))
    return job.metadata.resource_version == job_.metadata.resource_version ? Outcome::kDone : Outcome::kStopped;
  if (const auto* confirm = std::get_if<ConfirmPodAbsent>(&action)) return confirm_absent(*confirm);
  if (const auto* service = std::get_if<CreateService>(&action)) return create_service(*service);
  if (const auto* pod = std::get_if<CreatePod>(&action)) return create_pod(*pod, job);
  if (std::holds_alternative<CreateClaim>(action)) return Outcome::kDone;  // claims have no state here
  if (const auto* pod = std::get_if<DeletePod>(&action)) return delete_pod(*pod);
  if (const auto* service = std::get_if<DeleteService>(&action)) return delete_service(*service);
  if (const auto* policy = std::get_if<CreateNetworkPolicy>(&action)) return create_network_policy(*policy);
  if (const auto* policy = std::get_if<ReplaceNetworkPolicy>(&action)) return replace_network_policy(*policy);
  if (const auto* policy = std::get_if<DeleteNetworkPolicy>(&action)) return delete_network_policy(*policy);
  if (const auto* workload = std::get_if<CreateWorkload>(&action)) return create_workload(*workload);
  if (const auto* confirm = std::get_if<ConfirmWorkloadUnchanged>(&action)) {
    const Workload* live = find_workload(confirm->name);
    const bool is_same = live != nullptr && version_of(*live) == confirm->resource_version;
    return is_same ? Outcome::kDone : Outcome::kStopped;
  }
  if (const auto* update = std::get_if<UpdateWorkload>(&action)) return update_workload(*update);
  if (const auto* remove = std::get_if<DeleteWorkload>(&action)) return delete_workload(*remove);
  if (const auto* group = std::get_if<CreatePodGroup>(&action)) return create_pod_group(*group);
  if (const auto* group = std::get_if<DeletePodGroup>(&action)) {
    if (objects_.pod_groups.erase(group->name) > 0) ++writes_;
    return Outcome::kDone;
  }
  if (const auto* ended = std::get_if<DeleteJob>(&action)) return delete_job(*ended);
  return patch_status(std::get<PatchStatus>(action), job);
}

Outcome SimCluster::confirm_absent(const ConfirmPodAbsent& action) {
  const Pod* pod = find(action.name);
  return pod == nullptr || pod->uid == action.except_uid ? Outcome::kDone : Outcome::kStopped;
}

Outcome SimCluster::create_service(const CreateService& action) {
  if (objects_.service) return Outcome::kDone;  // AlreadyExists; the simulation has no Services of other owners
  const auto body = nlohmann::json::parse(action.body);
  objects_.service = Service{.name = body["metadata"]["name"],
                             .uid = "uid-of-service",
                             .owner_uid = body["metadata"]["ownerReferences"][0]["uid"],
                             .owner_is_job = true,
                             .deleting = false,
                             .created = now_,
                             .regroup_key = unused_key()};
  ++writes_;
  return Outcome::kDone;
}

// A random key in the real cluster. Here it is the first one that no pod has, so that equal states have equal keys.
std::string SimCluster::unused_key() const {
  std::string key = "a";
  const auto is_used = [&](const auto& item) { return item.second.regroup_key == key; };
  while (std::ranges::any_of(objects_.pods, is_used)) ++key.front();
  return key;
}

Outcome SimCluster::create_network_policy(const CreateNetworkPolicy& action) {
  if (objects_.network_policy) return Outcome::kDone;  // AlreadyExists; owned by the job
  const auto body = nlohmann::json::parse(action.body);
  objects_.network_policy = NetworkPolicy{.name = body["metadata"]["name"],
                                          .uid = "uid-of-policy",
                                          .owner_uid = body["metadata"]["ownerReferences"][0]["uid"],
                                          .owner_is_job = true,
                                          .deleting = false,
                                          .digest = spec_digest(body["spec"])};
  objects_.had_network_policy = true;
  ++writes_;
  return Outcome::kDone;
}

Outcome SimCluster::replace_network_policy(const ReplaceNetworkPolicy& action) {
  const auto body = nlohmann::json::parse(action.body);
  if (!objects_.network_policy || body["metadata"]["uid"] != objects_.network_policy->uid) return Outcome::kStopped;
  const std::string digest = spec_digest(body["spec"]);
  if (digest != objects_.network_policy->digest) ++writes_;
  objects_.network_policy->digest = digest;
  return Outcome::kDone;
}

Outcome SimCluster::delete_network_policy(const DeleteNetworkPolicy& action) {
  if (!objects_.network_policy || objects_.network_policy->uid != action.uid) return Outcome::kDone;
  delete_network_policy();
  ++writes_;
  return Outcome::kDone;
}

Outcome SimCluster::create_workload(const CreateWorkload& action) {
  if (find_workload(action.name) != nullptr) return Outcome::kDone;  // AlreadyExists; owned by the job
  objects_.workloads.push_back({.name = action.name,
                                .uid = "uid-of-" + action.name,
                                .resource_version = "",
                                .owner_uid = job_.metadata.uid,
                                .queue = action.queue,
                                .nodes = action.nodes});
  ++writes_;
  return Outcome::kDone;
}

Outcome SimCluster::create_pod_group(const CreatePodGroup& action) {
  const auto body = nlohmann::json::parse(action.body);
  const int minimum = body["spec"]["schedulingPolicy"]["gang"]["minCount"];
  if (objects_.pod_groups.try_emplace(action.name, minimum).second) ++writes_;
  return Outcome::kDone;
}

Outcome SimCluster::update_workload(const UpdateWorkload& action) {
  using Change = UpdateWorkload::Change;
  Workload* live = find_workload(action.name);
  if (live == nullptr) return Outcome::kStopped;
  Workload& workload = *live;
  switch (action.change) {
    case Change::kRelease:
      if (!workload.evicted || !workload.has_quota) return Outcome::kStopped;
      workload.has_quota = workload.admitted = false;
      workload.requeued = true;
      workload.admission = {};
      break;
    case Change::kReady:
    case Change::kNotReady:
      workload.pods_ready = action.change == Change::kReady;
      break;
    case Change::kSucceed:
    case Change::kFail:
      workload.finished = true;
      break;
  }
  ++writes_;
  return Outcome::kDone;
}

Outcome SimCluster::create_pod(const CreatePod& action, const Job& seen) {
  if (const Pod* there = find(action.name)) {
    if (there->owner_uid == job_.metadata.uid) return Outcome::kDone;
    objects_.conflicting.insert(action.name);
    return Outcome::kStopped;
  }
  if (action.name != pod_name(job_, action.attempt, action.node_rank))
    throw std::logic_error(action.name + " is not the name of its attempt and node rank");
  const bool has_token = needs_token(job_, action.nodes);
  if (has_token && !objects_.service) return Outcome::kStopped;  // the token depends on its key
  Pod pod;
  pod.name = action.name;
  pod.owner_uid = job_.metadata.uid;
  if (has_token) pod.regroup_key = objects_.service->regroup_key;
  pod.gang = action.gang;
  pod.grace_seconds = kGraceSeconds;
  pod.avoided = action.avoided;
  // Other decisions do not use it, and a pod of unknown age avoids nodes less immediately.
  if (job_.spec.scheduling.pending_timeout_seconds) pod.created = now_;
  pod.uid = pod.name + "#" + std::to_string(++objects_.created[pod.name]);
  if (objects_.profile) objects_.pod_profiles[pod.name] = recorded_profile(seen.status);
  touch(pod);
  objects_.pods[pod.name] = pod;
  ++writes_;
  return Outcome::kDone;
}

Outcome SimCluster::delete_pod(const DeletePod& action) {
  Pod* pod = find(action.name);
  if (pod == nullptr || pod->uid != action.uid) return Outcome::kDone;
  if (!action.resource_version.empty() && action.resource_version != pod->resource_version) return Outcome::kStopped;
  if (job_.status.phase == api::Phase::kSuspended) note_stop(*pod);
  begin_deletion(action.name);
  ++writes_;
  return Outcome::kDone;
}

Outcome SimCluster::delete_service(const DeleteService& action) {
  if (!objects_.service || objects_.service->uid != action.uid) return Outcome::kDone;
  delete_service();
  ++writes_;
  return Outcome::kDone;
}

Outcome SimCluster::delete_job(const DeleteJob& action) {
  if (action.uid != job_.metadata.uid) return Outcome::kDone;
  if (action.resource_version != job_.metadata.resource_version) return Outcome::kStopped;
  delete_job();
  ++writes_;
  return Outcome::kDone;
}

Outcome SimCluster::patch_status(const PatchStatus& action, const Job& seen) {
  if (seen.metadata.resource_version != job_.metadata.resource_version) return Outcome::kStopped;
  // Encodes the status as JSON, so that fields which the API server would lose are detected.
  nlohmann::json object = api::to_json(job_);
  object["status"] = api::status_to_json(job_.status);
  const nlohmann::json before = object;
  object.merge_patch({{"status", api::status_patch(seen.metadata, action.status)["status"]}});
  if (object == before) return Outcome::kDone;
  job_ = api::training_job_from_json(object).value();
  job_.metadata.resource_version = next_version();
  ++writes_;
  return Outcome::kDone;
}

Pod* SimCluster::find(const std::string& name) {
  const auto found = objects_.pods.find(name);
  return found == objects_.pods.end() ? nullptr : &found->second;
}

bool SimCluster::may_be_placed(const Pod& pod) const {
  if (!pod.gang) return true;
  const auto group = objects_.pod_groups.find(pod.gang->pod_group);
  const auto members = std::ranges::count_if(
      objects_.pods, [&](const auto& item) { return item.second.gang == pod.gang && is_live(item.second); });
  return group != objects_.pod_groups.end() && members >= group->second;
}

bool SimCluster::schedule(const std::string& name) {
  Pod* pod = find(name);
  if (pod == nullptr || pod->scheduled || pod->deleting || pod->phase != PodPhase::kPending) return false;
  if (!may_be_placed(*pod) || !find_node(*pod)) return false;
  place(*pod);
  for (auto& [other, peer] : objects_.pods) {
    if (pod->gang && peer.gang == pod->gang && is_live(peer) && !peer.scheduled && find_node(peer)) place(peer);
  }
  return true;
}

// Each node has room for all pods.
std::optional<std::string> SimCluster::find_node(const Pod& pod) const {
  if (objects_.nodes == 0) return "node-" + pod.name.substr(pod.name.rfind('-') + 1);
  const AvoidedNodes avoided = pod.avoided.value_or(AvoidedNodes{});
  std::optional<std::string> found;
  for (int i = objects_.nodes - 1; i >= 0; --i) {
    const std::string node = fmt::format("node-{}", i);
    if (std::ranges::find(avoided.required, node) != avoided.required.end()) continue;
    const bool is_preferred = std::ranges::find(avoided.preferred, node) == avoided.preferred.end();
    if (is_preferred || !found) found = node;
  }
  return found;
}

// REQUIRES: find_node() finds one.
void SimCluster::place(Pod& pod) {
  pod.node_name = *find_node(pod);
  pod.scheduled = true;
  pod.scheduled_at = now_;
  pod.avoided.reset();  // the operator does not read it any more
  touch(pod);
}

bool SimCluster::start(const std::string& name) {
  Pod* pod = find(name);
  if (pod == nullptr || !pod->scheduled || pod->deleting || pod->phase != PodPhase::kPending) return false;
  pod->phase = PodPhase::kRunning;
  pod->started = true;
  pod->pod_ip = "10.0.0.1";
  touch(*pod);
  return true;
}

bool SimCluster::make_ready(const std::string& name) {
  Pod* pod = find(name);
  if (pod == nullptr || pod->phase != PodPhase::kRunning || pod->ready || pod->trainer) return false;
  pod->ready = true;
  touch(*pod);
  return true;
}

bool SimCluster::end(const std::string& name, int exit_code) {
  if (!end_trainer(name, exit_code)) return false;
  find(name)->phase = exit_code == 0 ? PodPhase::kSucceeded : PodPhase::kFailed;
  return true;
}

bool SimCluster::end_trainer(const std::string& name, int exit_code) {
  Pod* pod = find(name);
  if (pod == nullptr || pod->phase != PodPhase::kRunning || pod->trainer) return false;
  pod->ready = false;
  // A launcher that is killed writes no message.
  const char* message = exit_code > 0 && exit_code < 128 ? kLauncherMessage : "";
  pod->trainer = Termination{exit_code, exit_code == 0 ? "Completed" : "Error", message, now_};
  const std::optional<PodIdentity> id = parse_pod_name(job_, name);
  if (exit_code != 0 && !pod->deleting && id && id->attempt == job_.status.attempt) {
    objects_.crashed_attempt = id->attempt;
    if (objects_.stopped_attempt == id->attempt) objects_.stopped_attempt.reset();
  }
  touch(*pod);
  return true;
}

bool SimCluster::disconnect(const std::string& name) {
  const std::optional<PodIdentity> id = parse_pod_name(job_, name);
  if (!id || id->node_rank == 0 || !launcher_bounds(job_) || !end(name, to_int(ExitCode::kPeerLost))) return false;
  find(name)->trainer->message = kDisconnectedMessage;
  return true;
}

bool SimCluster::evict(const std::string& name) {
  Pod* pod = find(name);
  if (pod == nullptr || pod->phase == PodPhase::kSucceeded || pod->phase == PodPhase::kFailed) return false;
  pod->phase = PodPhase::kFailed;
  pod->reason = "Evicted";
  pod->ready = false;
  touch(*pod);
  return true;
}

void SimCluster::note_stop(const Pod& pod) {
  const std::optional<PodIdentity> id = parse_pod_name(job_, pod.name);
  if (id && id->attempt == job_.status.attempt && objects_.crashed_attempt != id->attempt)
    objects_.stopped_attempt = id->attempt;
}

bool SimCluster::request_deletion(const std::string& name) {
  if (const Pod* pod = find(name)) note_stop(*pod);
  return begin_deletion(name);
}

bool SimCluster::begin_deletion(const std::string& name) {
  Pod* pod = find(name);
  if (pod == nullptr || pod->deleting) return false;
  const bool stops_immediately =
      !pod->scheduled || pod->phase == PodPhase::kSucceeded || pod->phase == PodPhase::kFailed;
  if (stops_immediately) return remove(name);
  pod->deleting = true;
  pod->stop_requested_at = now_;
  pod->grace_ends_at = now_ + std::chrono::seconds(pod->grace_seconds);
  touch(*pod);
  return true;
}

bool SimCluster::disrupt(const std::string& name) {
  Pod* pod = find(name);
  if (pod == nullptr || pod->deleting || pod->phase == PodPhase::kSucceeded || pod->phase == PodPhase::kFailed)
    return false;
  pod->disruption = "PreemptionByScheduler";
  return request_deletion(name);
}

bool SimCluster::remove(const std::string& name) {
  ++version_;
  return objects_.pods.erase(name) > 0;
}

bool SimCluster::step() {
  const bool has_reported = objects_.reported && objects_.reported->attempt == job_.status.attempt;
  return report_step(has_reported ? objects_.reported->world_size : job_.world_size());
}

bool SimCluster::step_in_new_group() {
  const std::optional<int> nodes = possible_group(job_, objects_.pods);
  if (!nodes) return false;
  const bool has_reported = objects_.reported && objects_.reported->attempt == job_.status.attempt;
  const int before = has_reported ? objects_.reported->world_size : job_.world_size();
  const int world_size = *nodes * job_.spec.processes_per_node;
  return world_size != before && report_step(world_size);
}

bool SimCluster::report_step(int world_size) {
  const Pod* first = find(pod_name(job_, job_.status.attempt, 0));
  if (first == nullptr || first->phase != PodPhase::kRunning || first->trainer) return false;
  const auto& known = job_.status.progress;
  const bool has_reported = objects_.reported && objects_.reported->attempt == job_.status.attempt;
  if (has_reported && (!known || known->step != objects_.reported->step)) return false;
  objects_.reported.emplace().attempt = job_.status.attempt;
  objects_.reported->world_size = world_size;
  objects_.reported->step = known ? (known->step + 1) % 3 : 0;
  return true;
}

void SimCluster::set_suspend(bool value) {
  if (job_.spec.suspend == value) return;
  job_.spec.suspend = value;
  ++job_.metadata.generation;
  job_.metadata.resource_version = next_version();
}

void SimCluster::set_max_restarts(int count) {
  if (job_.spec.failure_policy.max_restarts == count) return;
  job_.spec.failure_policy.max_restarts = count;
  ++job_.metadata.generation;
  job_.metadata.resource_version = next_version();
}

void SimCluster::set_nodes(int count) {
  if (job_.spec.nodes == count) return;
  job_.spec.nodes = count;
  ++job_.metadata.generation;
  job_.metadata.resource_version = next_version();
}

void SimCluster::delete_job() {
  job_.metadata.deletion_timestamp = now_;
  job_.metadata.resource_version = next_version();
}

void SimCluster::delete_service() { objects_.service.reset(); }

bool SimCluster::admit(std::optional<int> nodes) {
  const auto admitted =
      std::ranges::find_if(objects_.workloads, [](const Workload& one) { return !one.has_quota && !one.finished; });
  // Only the first Workload of a job has a minimum.
  if (admitted == objects_.workloads.end() || (nodes && admitted->name != workload_name(job_))) return false;
  for (Workload& replaced : objects_.workloads) replaced.finished = replaced.finished || replaced.has_quota;
  admitted->has_quota = admitted->admitted = true;
  admitted->evicted = admitted->requeued = admitted->pods_ready = false;
  admitted->admission = {.cluster_queue = "cluster-queue", .nodes = nodes.value_or(admitted->nodes)};
  return true;
}

bool SimCluster::preempt() {
  const Workload* preempted = find_quota(objects_);
  if (preempted == nullptr || preempted->evicted) return false;
  find_workload(preempted->name)->evicted = true;
  return true;
}

bool SimCluster::lose_workload() {
  if (objects_.workloads.empty()) return false;
  objects_.lost_workload = true;
  const Workload* with_quota = find_quota(objects_);
  const std::string name = with_quota == nullptr ? objects_.workloads.front().name : with_quota->name;
  return std::erase_if(objects_.workloads, [&](const Workload& one) { return one.name == name; }) > 0;
}

Outcome SimCluster::delete_workload(const DeleteWorkload& action) {
  const Workload* live = find_workload(action.name);
  if (live == nullptr) return Outcome::kDone;
  if (!action.resource_version.empty() && action.resource_version != version_of(*live)) return Outcome::kStopped;
  std::erase_if(objects_.workloads, [&](const Workload& one) { return one.name == action.name; });
  ++writes_;
  return Outcome::kDone;
}

Workload* SimCluster::find_workload(const std::string& name) {
  const auto found = std::ranges::find(objects_.workloads, name, &Workload::name);
  return found == objects_.workloads.end() ? nullptr : &*found;
}

void SimCluster::add_foreign_pod(const std::string& name) {
  if (find(name) != nullptr) return;
  Pod pod;
  pod.name = name;
  pod.uid = "foreign-" + next_version();
  pod.owner_uid = "another-owner";
  pod.phase = PodPhase::kRunning;
  pod.scheduled = true;
  touch(pod);
  objects_.pods[name] = pod;
}

void SimCluster::remove_foreign_pods() {
  std::erase_if(objects_.pods, [&](const auto& item) { return item.second.owner_uid != job_.metadata.uid; });
  objects_.conflicting.clear();
}

}  // namespace oarlock::test
