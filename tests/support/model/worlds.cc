#include "tests/support/model/worlds.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "operator/core/bad_nodes.h"
#include "operator/core/failure.h"
#include "operator/core/handover.h"
#include "operator/core/membership.h"
#include "tests/support/builders.h"
#include "tests/support/model/key_writer.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT: this file is about its types
using std::chrono::seconds;

SystemTime now() { return at_second(1000); }
SystemTime oldest() { return now() - Worlds::kOldest; }

void age(SystemTime& time, seconds older, bool matters) {
  time = matters ? std::max(time - older, oldest()) : oldest();
}
void age(std::optional<SystemTime>& time, seconds older, bool matters) {
  if (time) age(*time, older, matters);
}

std::string start_text(const Job& job) {
  const auto start = restart_time(job, job.status, now());
  return start ? to_rfc3339(*start) : "";
}

void age(Job& job, seconds older) {
  api::Status& status = job.status;
  const bool has_deadline = job.spec.active_deadline_seconds.has_value();
  const std::string before = start_text(job);
  age(job.metadata.deletion_timestamp, older, false);
  age(status.start_time, older, has_deadline);
  age(status.attempt_start_time, older, job.spec.elastic && !is_running(status.phase));
  status.usage.reset();  // neither affects a decision
  status.startup.reset();
  age(status.completion_time, older, job.spec.ttl_seconds_after_finished.has_value());
  const bool starts = is_running(status.phase) && status.progress && !status.progress->last_step_time;
  for (api::Condition& condition : status.conditions) {
    const bool is_start = starts && (condition.type == "Pending" || condition.type == "Restarting");
    age(condition.last_transition_time, older, is_start || (has_deadline && condition.type == "Suspended"));
    // Other messages contain a time, are written once and are never read again.
    const bool is_compared = condition.type == to_string(status.phase) && !is_running(status.phase);
    if (!is_compared) condition.message.clear();
  }
  if (status.elastic) {
    age(status.elastic->last_time, older, true);
    age(status.elastic->waiting_since, older, true);
  }
  if (status.queue) age(status.queue->since, older, has_deadline);
  if (status.progress) age(status.progress->last_step_time, older, status.phase == api::Phase::kRunning);
  const bool expires = seconds(job.spec.failure_policy.avoid_nodes_seconds) <= Worlds::kOldest;
  for (api::BadNode& node : status.bad_nodes) age(node.last_time, older, expires);
  for (api::Replacement& replacement : status.replacements) age(replacement.time, older, is_running(status.phase));
  for (api::AttemptRecord& record : status.attempts) {
    const bool waits = &record == &status.attempts.back() && restart_time(job, status, now());
    age(record.end_time, older, waits);
    record.start_time = record.end_time;
  }
  // The condition contains the time of the next start.
  const std::string after = start_text(job);
  for (api::Condition& condition : status.conditions) {
    const size_t at = before.empty() ? std::string::npos : condition.message.find(before);
    if (at != std::string::npos) condition.message.replace(at, before.size(), after);
  }
}

// Returns whether the times at which pods got their nodes can affect a decision: only while the group may shrink.
bool has_placement_times(const Job& job) {
  const api::Status& status = job.status;
  return job.spec.elastic && !is_terminal(status.phase) && (!is_running(status.phase) || !status.replacements.empty());
}

void age(Pod& pod, seconds older, bool has_placement_time, bool is_active, bool is_waiting) {
  // Once the time to end has passed, it does not matter when it did.
  const bool may_be_awaited = is_active && pod.phase == PodPhase::kRunning && !pod.trainer && pod.grace_ends_at &&
                              *pod.grace_ends_at - older + kStopMargin > now();
  age(pod.grace_ends_at, older, may_be_awaited);
  age(pod.scheduled_at, older, has_placement_time);
  age(pod.created, older, is_waiting || pod.avoided);
  const bool is_collateral = pod.trainer && pod.trainer->exit_code == to_int(ExitCode::kPeerLost);
  const bool may_be_stopped = pod.trainer && !pod.stop_requested_at && pod.phase == PodPhase::kRunning;
  const bool has_ended_before = pod.trainer && pod.stop_requested_at && ended_before_stop(pod);
  if (pod.trainer) age(pod.trainer->finished_at, older, is_collateral || may_be_stopped);
  // Of the request to stop the pod, only the order with the end of the trainer matters.
  age(pod.stop_requested_at, older, false);
  if (has_ended_before) pod.trainer->finished_at = oldest() - Worlds::kTick;
}

std::string key_of(const Pod& pod) {
  const auto age_of = [](const std::optional<SystemTime>& time) { return time ? (now() - *time).count() : 0; };
  return fmt::format("{} {} {} {} {} {} {}{} {} {} {} {} {}{} {} {}|", pod.name, pod.uid, pod.owner_uid,
                     static_cast<int>(pod.phase), pod.reason, pod.started, pod.deleting, pod.scheduled,
                     age_of(pod.scheduled_at), age_of(pod.created), age_of(pod.grace_ends_at), pod.disruption,
                     pod.trainer ? pod.trainer->exit_code : -1, is_disconnected(pod) ? "d" : "",
                     age_of(pod.trainer ? pod.trainer->finished_at : std::nullopt), pod.regroup_key) +
         (pod.gang ? "in a gang|" : "") + pod.node_name + (pod.avoided ? to_annotation(*pod.avoided) : "");
}

std::string key_of_services(const Objects& objects) {
  std::string out = objects.service ? "service " + objects.service->regroup_key + "|" : "|";
  if (objects.network_policy) out += "policy " + objects.network_policy->digest;
  for (const Workload& workload : objects.workloads) {
    out += fmt::format("{} {} {} {}{}{}{}{} ", workload.name, workload.nodes, workload.admission.nodes,
                       workload.has_quota, workload.evicted, workload.requeued, workload.finished, workload.pods_ready);
  }
  for (const auto& [name, minimum] : objects.pod_groups) out += fmt::format("group {} {} ", name, minimum);
  if (objects.profile) out += fmt::format("profile {} ", *objects.profile);
  return out;
}

std::string version_of(const std::string& key) { return fmt::format("v{:x}", std::hash<std::string>{}(key)); }

// Whether the trainer of the pod completed its part on its own, before any request to stop the pod.
bool has_completed(const Job& job, const Pod& pod) {
  return pod.trainer && is_done_exit_code(job, pod.trainer->exit_code) && ended_before_stop(pod);
}

// A rank that the status records as finished cannot fail any more. A pod that succeeded and vanished before it was
// recorded is the window that api::FinishedRanks describes: it may count as lost. Pods with different keys never form a
// group.
bool has_failure(const SimCluster& cluster) {
  const Job& job = cluster.job();
  const Membership recorded = classify_objects(cluster.observe({.job = job, .pods = {}, .services = {}}));
  std::optional<std::string> key;
  for (int rank = 0; rank < job.group_nodes(); ++rank) {
    if (is_recorded_finished(recorded, static_cast<size_t>(rank))) continue;
    const auto found = cluster.pods().find(fmt::format("{}-{}-{}", job.metadata.name, job.status.attempt, rank));
    if (found == cluster.pods().end()) {
      if (is_running(job.status.phase)) return true;
      continue;
    }
    const Pod& pod = found->second;
    if (pod.owner_uid != job.metadata.uid || ((pod.deleting || has_ended(pod)) && !has_completed(job, pod)))
      return true;
    if (key.value_or(pod.regroup_key) != pod.regroup_key) return true;
    key = pod.regroup_key;
  }
  return false;
}

// Adds the current state of the attempt to its history.
void look(const SimCluster& cluster, World& world) {
  world.has_failed = world.has_failed || has_failure(cluster);
  for (const auto& [name, pod] : cluster.pods()) {
    const auto id = parse_pod_name(cluster.job(), name);
    if (!id || id->attempt != cluster.job().status.attempt || !pod.trainer) continue;
    // A pod that exits because it is being deleted has neither completed its training nor failed permanently.
    if (pod.deleting) continue;
    if (is_done_exit_code(cluster.job(), pod.trainer->exit_code))
      world.done |= static_cast<uint8_t>(1U << static_cast<unsigned>(id->node_rank));
    if (pod.trainer->exit_code == to_int(ExitCode::kConfig)) world.has_no_remedy = true;
  }
}

}  // namespace

Worlds::Worlds(const SimCluster& first) {
  World world;
  world.job = intern_job(first.job(), seconds(0));
  world.objects = intern_objects(first.objects(), first.job(), seconds(0));
  look(first, world);
  intern(world);
}

SimCluster Worlds::cluster(uint32_t world) const {
  return {jobs_[worlds_[world].job], objects_[worlds_[world].objects], now()};
}

uint32_t Worlds::after(uint32_t from, const SimCluster& cluster) {
  const seconds older = std::chrono::duration_cast<seconds>(cluster.now() - now());
  const Job& before = jobs_[worlds_[from].job];
  const bool is_same_job =
      older.count() == 0 && cluster.job().metadata.resource_version == before.metadata.resource_version;
  World world = worlds_[from];
  if (cluster.job().status.attempt != before.status.attempt) world = {};
  look(cluster, world);
  const bool is_unchanged = is_running(cluster.job().status.phase) && cluster.objects().reported &&
                            cluster.objects().reported == objects_[worlds_[from].objects].reported;
  const auto ticks = static_cast<uint8_t>(older / kTick);
  world.ticks_without_step =
      is_unchanged ? std::min(kOldestTicks, static_cast<uint8_t>(world.ticks_without_step + ticks)) : uint8_t{0};
  const uint32_t job = is_same_job ? worlds_[from].job : intern_job(cluster.job(), older);
  world.job = job;
  world.objects = intern_objects(cluster.objects(), cluster.job(), older);
  return intern(world);
}

Observed Worlds::observe(uint32_t job, uint32_t pods, uint32_t services, PollView poll, bool untouched) const {
  Observed out;
  out.untouched = untouched;
  out.job = jobs_[job];
  out.now = now();
  const Objects& seen = objects_[pods];
  for (const auto& [name, pod] : seen.pods) {
    if (pod.owner_uid == out.job.metadata.uid || seen.conflicting.contains(name)) out.pods.push_back(pod);
  }
  if (objects_[services].service) {
    out.services.push_back(service_of(out.job));
    out.services.back().created = now();
    out.services.back().regroup_key = objects_[services].service->regroup_key;
  }
  out.metrics_peers = seen.metrics_peers;
  if (objects_[services].network_policy) out.network_policies.push_back(*objects_[services].network_policy);
  out.workloads = workloads_of(out.job, objects_[services].workloads);
  if (seen.has_gangs) out.gang_apis = {GangApi::kNative};
  out.pod_groups = pod_groups_of(out.job, objects_[services].pod_groups);
  out.profile = profile_for(out.job, objects_[services]);
  if (poll != PollView::kNone) out.progress = seen.reported;
  if (poll == PollView::kCurrent) out.last_poll = StatusPoll{now(), true, true};
  return out;
}

uint32_t Worlds::intern_job(Job job, seconds older) {
  job.metadata.resource_version.clear();
  age(job, older);
  KeyWriter writer;
  describe(job.metadata, writer);
  describe(job.spec, writer);
  describe(job.status, writer);
  std::string key = writer.text();
  job.metadata.resource_version = version_of(key);
  const auto [it, is_new] = job_ids_.try_emplace(std::move(key), static_cast<uint32_t>(jobs_.size()));
  if (is_new) jobs_.push_back(std::move(job));
  return it->second;
}

uint32_t Worlds::intern_objects(Objects objects, const Job& job, seconds older) {
  // Names of earlier attempts are never used again.
  const auto is_earlier = [&](const auto& item) {
    return parse_pod_name(job, item.first)->attempt < job.status.attempt;
  };
  std::erase_if(objects.created, is_earlier);
  std::erase_if(objects.pod_profiles, is_earlier);
  const std::string services = key_of_services(objects);
  std::string key = services;
  for (auto& [name, pod] : objects.pods) {
    const api::Phase phase = job.status.phase;
    const bool is_waiting = phase == api::Phase::kPending || phase == api::Phase::kRestarting;
    age(pod, older, has_placement_times(job), !is_terminal(phase), is_waiting);
    const std::string text = key_of(pod);
    pod.resource_version = version_of(text);
    key += text;
  }
  if (objects.had_network_policy) key += "had a policy|";
  if (objects.lost_workload) key += "lost its Workload|";
  if (objects.reported) {
    key += fmt::format("reported {} {} {}", objects.reported->attempt, objects.reported->step,
                       objects.reported->world_size);
  }
  for (std::optional<int>* attempt : {&objects.stopped_attempt, &objects.crashed_attempt}) {
    if (*attempt && **attempt < job.status.attempt - 1) attempt->reset();
    key += fmt::format("attempt {} ", attempt->value_or(-1));
  }
  for (const std::string& name : objects.conflicting) key += "conflict " + name;
  for (const auto& [name, count] : objects.created) key += fmt::format("created {} {}", name, count);
  for (const auto& [name, generation] : objects.pod_profiles) key += fmt::format("profile of {} {}", name, generation);
  const auto [it, is_new] = object_ids_.try_emplace(std::move(key), static_cast<uint32_t>(objects_.size()));
  if (!is_new) return it->second;
  objects_.push_back(std::move(objects));
  const auto state = service_state_ids_.try_emplace(services, static_cast<unsigned>(service_state_ids_.size())).first;
  if (state->second >= kServiceStates)
    throw std::logic_error("the Service and the other watched objects have more states than the checker distinguishes");
  service_states_.push_back(state->second);
  return it->second;
}

uint32_t Worlds::intern(const World& world) {
  const uint64_t key = (static_cast<uint64_t>(world.job) << 32U) | world.objects;
  std::vector<uint32_t>& same = world_ids_[key];
  for (const uint32_t id : same) {
    if (worlds_[id] == world) return id;
  }
  same.push_back(static_cast<uint32_t>(worlds_.size()));
  worlds_.push_back(world);
  return same.back();
}

}  // namespace oarlock::test
