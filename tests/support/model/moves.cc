#include "tests/support/model/moves.h"

#include <fmt/format.h>

#include "operator/core/membership.h"

namespace oarlock::test {

using Kind = Move::Kind;

std::string to_string(const Move& move) {
  switch (move.kind) {
    case Kind::kSchedule:
      return move.pod + " is scheduled";
    case Kind::kStart:
      return move.pod + " starts";
    case Kind::kSucceed:
      return move.pod + " exits with 0";
    case Kind::kFinish:
      return fmt::format("the trainer of {} exits with {}, and a sidecar continues", move.pod, move.exit_code);
    case Kind::kTick:
      return fmt::format("{} s pass", Worlds::kTick.count());
    case Kind::kStep:
      return "rank 0 completes a step";
    case Kind::kRegroup:
      return "the group of the pods that run completes a step";
    case Kind::kResume:
      return "spec.suspend: false";
    case Kind::kAdmit:
      return "the queue admits the job";
    case Kind::kAdmitPartly:
      return "the queue admits minNodes of the job";
    case Kind::kPreempt:
      return "the queue evicts the job";
    case Kind::kDeleteWorkload:
      return "an administrator deletes the Workload";
    case Kind::kStop:
      return move.pod + " has terminated";
    case Kind::kVanish:
      return move.pod + ", which has terminated, is removed";
    case Kind::kFail:
      return fmt::format("{} exits with {}", move.pod, move.exit_code);
    case Kind::kDisconnect:
      return move.pod + " loses the connection to node rank 0 and exits with 76";
    case Kind::kEvict:
      return move.pod + " is evicted";
    case Kind::kDelete:
      return "a user deletes " + move.pod;
    case Kind::kDisrupt:
      return move.pod + " is preempted";
    case Kind::kLose:
      return move.pod + " is lost with its node";
    case Kind::kSuspend:
      return "spec.suspend: true";
    case Kind::kEdit:
      return "spec.failurePolicy.maxRestarts is increased";
    case Kind::kScale:
      return "a user scales the job";
    case Kind::kEditProfile:
      return "a user creates, changes or deletes the TrainingProfile";
    case Kind::kDeleteJob:
      return "a user deletes the job";
    case Kind::kDeleteService:
      return "a user deletes the Service";
    case Kind::kDeletePolicy:
      return "a user deletes the NetworkPolicy";
    case Kind::kEditPolicy:
      return "a user edits the NetworkPolicy";
    case Kind::kFreeNames:
      return "the pods of other owners are removed";
  }
  return "";
}

namespace {

// The exit codes with which the trainer of a pod may complete its part.
std::vector<int> done_exit_codes(const control::Job& job, const MoveOptions& options) {
  std::vector<int> out = {0};
  for (const int code : options.exit_codes) {
    if (is_done_exit_code(job, code)) out.push_back(code);
  }
  return out;
}

}  // namespace

std::vector<Move> moves_in(const SimCluster& cluster, const MoveOptions& options) {
  const control::Job& job = cluster.job();
  std::vector<Move> out = {{Kind::kTick, "", 0}};
  if (job.metadata.deletion_timestamp) return {};
  out.push_back({job.spec.suspend ? Kind::kResume : Kind::kSuspend, "", 0});
  for (const Kind kind : {Kind::kEdit, Kind::kDeleteJob}) out.push_back({kind, "", 0});
  if (job.spec.elastic) out.push_back({Kind::kScale, "", 0});
  if (cluster.objects().profile) out.push_back({Kind::kEditProfile, "", 0});
  if (!cluster.objects().workloads.empty()) {
    for (const Kind kind : {Kind::kAdmit, Kind::kPreempt, Kind::kDeleteWorkload}) out.push_back({kind, "", 0});
    if (job.spec.elastic) out.push_back({Kind::kAdmitPartly, "", 0});
  }
  if (options.steps) out.push_back({Kind::kStep, "", 0});
  if (options.steps && job.spec.elastic) out.push_back({Kind::kRegroup, "", 0});
  if (cluster.has_service()) out.push_back({Kind::kDeleteService, "", 0});
  if (cluster.objects().network_policy) {
    for (const Kind kind : {Kind::kDeletePolicy, Kind::kEditPolicy}) out.push_back({kind, "", 0});
  }
  bool has_foreign = false;
  for (const auto& [name, pod] : cluster.pods()) {
    if (pod.owner_uid != job.metadata.uid) {
      has_foreign = true;
      continue;
    }
    const bool has_ended = pod.phase == control::PodPhase::kSucceeded || pod.phase == control::PodPhase::kFailed;
    if (has_ended) {
      // Terminated pods of earlier attempts and of a finished job do not affect decisions.
      const bool is_current = control::parse_pod_name(job, name)->attempt == job.status.attempt;
      if (is_current && !is_terminal(job.status.phase)) out.push_back({Kind::kVanish, name, 0});
      continue;
    }
    out.push_back({pod.deleting ? Kind::kStop : Kind::kLose, name, 0});
    if (pod.phase == control::PodPhase::kRunning && !pod.trainer) {
      out.push_back({Kind::kSucceed, name, 0});
      for (const int code : options.exit_codes) out.push_back({Kind::kFail, name, code});
      if (options.disconnects) out.push_back({Kind::kDisconnect, name, 0});
      if (options.sidecars) {
        for (const int code : done_exit_codes(job, options)) out.push_back({Kind::kFinish, name, code});
      }
    }
    if (pod.deleting) continue;
    if (pod.trainer) {
      for (const Kind kind : {Kind::kDelete, Kind::kDisrupt}) out.push_back({kind, name, 0});
      continue;
    }
    // In larger groups, scheduled and unscheduled pods are not distinguished, which keeps the search short.
    out.push_back({pod.scheduled || job.spec.nodes > 1 || job.spec.elastic ? Kind::kStart : Kind::kSchedule, name, 0});
    for (const Kind kind : {Kind::kEvict, Kind::kDelete, Kind::kDisrupt}) out.push_back({kind, name, 0});
  }
  if (has_foreign) out.push_back({Kind::kFreeNames, "", 0});
  return out;
}

bool apply(const Move& move, SimCluster& cluster) {
  switch (move.kind) {
    case Kind::kSchedule:
      return cluster.schedule(move.pod);
    case Kind::kStart:
      cluster.schedule(move.pod);
      return cluster.start(move.pod);
    case Kind::kSucceed:
    case Kind::kFail:
      return cluster.end(move.pod, move.exit_code);
    case Kind::kFinish:
      return cluster.end_trainer(move.pod, move.exit_code);
    case Kind::kDisconnect:
      return cluster.disconnect(move.pod);
    case Kind::kTick:
      cluster.tick(static_cast<int>(Worlds::kTick.count()));
      return true;
    case Kind::kStep:
      return cluster.step();
    case Kind::kRegroup:
      return cluster.step_in_new_group();
    case Kind::kSuspend:
    case Kind::kResume:
      cluster.set_suspend(move.kind == Kind::kSuspend);
      return true;
    case Kind::kStop:
    case Kind::kVanish:
    case Kind::kLose:
      return cluster.remove(move.pod);
    case Kind::kEvict:
      return cluster.evict(move.pod);
    case Kind::kDelete:
      return cluster.request_deletion(move.pod);
    case Kind::kDisrupt:
      return cluster.disrupt(move.pod);
    case Kind::kEdit:
      if (cluster.job().spec.failure_policy.max_restarts >= 2) return false;
      cluster.set_max_restarts(cluster.job().spec.failure_policy.max_restarts + 1);
      return true;
    case Kind::kScale:
      // Between the largest and the smallest size.
      cluster.set_nodes(cluster.job().spec.nodes > 1 ? 1 : cluster.job().spec.elastic->max_nodes.value_or(2));
      return true;
    case Kind::kEditProfile:
      cluster.set_profile((*cluster.objects().profile + 1) % 3);
      return true;
    case Kind::kDeleteJob:
      cluster.delete_job();
      return true;
    case Kind::kDeleteService:
      cluster.delete_service();
      return true;
    case Kind::kDeletePolicy:
      cluster.delete_network_policy();
      return true;
    case Kind::kEditPolicy:
      cluster.edit_network_policy();
      return true;
    case Kind::kAdmit:
      return cluster.admit();
    case Kind::kAdmitPartly:
      return cluster.admit(cluster.job().spec.elastic->min_nodes);
    case Kind::kPreempt:
      return cluster.preempt();
    case Kind::kDeleteWorkload:
      return cluster.lose_workload();
    case Kind::kFreeNames:
      cluster.remove_foreign_pods();
      return true;
  }
  return false;
}

}  // namespace oarlock::test
