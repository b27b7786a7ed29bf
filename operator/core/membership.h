// Assigns the observed pods, Services and NetworkPolicies to the job and its attempts. An object belongs to the job if
// the uid of its controller is the job's. The attempt and the node rank of a pod are read from its immutable name.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/model.h"

namespace oarlock::control {

struct PodIdentity {
  int attempt = 0;
  int node_rank = 0;

  bool operator==(const PodIdentity&) const = default;
};

// <job>-<attempt>
std::string pod_group_name(const Job& job, int attempt);

// Parses a name that pod_name() made for the job; returns nullopt for any other name.
std::optional<PodIdentity> parse_pod_name(const Job& job, std::string_view name);

// Holds pointers into the Observed from which it was made, which must outlive it.
struct Membership {
  std::vector<const Pod*> current;  // pods of status.attempt by node rank; size group_nodes(); null if there is no pod
  std::vector<bool> finished;       // by node rank: recorded in status.finishedRanks, with or without a pod
  std::vector<const api::Replacement*> replacements;  // by node rank, of status.attempt; null if there is none
  std::vector<const Pod*> old;                        // pods of earlier attempts, and of node ranks beyond the group
  std::vector<const Pod*> newer;  // pods of attempts after status.attempt: the cached job is older than its pods
  std::vector<const Pod*> conflicting_pods;  // have the name of a pod of status.attempt, but another owner
  const Service* service = nullptr;
  const Service* conflicting_service = nullptr;
  bool wants_network_policy = false;  // Observed::metrics_peers is present
  const NetworkPolicy* network_policy = nullptr;
  const NetworkPolicy* conflicting_network_policy = nullptr;
  const Workload* workload = nullptr;            // the one that decides whether pods may run
  std::vector<const Workload*> other_workloads;  // requested for a growth of the group, or replaced by `workload`
  const PodGroup* pod_group = nullptr;           // of status.attempt
  std::vector<const PodGroup*> old_pod_groups;
};

// Sorts all lists by name, so that the result does not depend on the order of the objects in `observed`.
Membership classify_objects(const Observed& observed);

// Returns whether the current attempt has at least one pod.
bool has_pods(const Membership& members);

// Returns the first pod of the current attempt whose label was removed (Pod::unlabeled); null if there is none.
const Pod* find_unlabeled_pod(const Membership& members);

// Returns whether status.finishedRanks of the current attempt contains the node rank.
bool is_recorded_finished(const Membership& members, size_t node_rank);

// Returns whether the pod of this node rank is lost, and its replacement was decided but has not been created.
bool is_replacement_due(const Membership& members, size_t node_rank);

// Returns whether the pod of this node rank is lost, and its replacement has not started.
bool is_replacement_pending(const Membership& members, size_t node_rank);

// Returns whether the pod's launcher ended because it lost the connection to node rank 0, whose group may continue
// without it: exit code 76 and kReasonDisconnected in the termination message.
bool is_disconnected(const Pod& pod);

// Returns whether this node rank cannot be in the group that the launchers form: the replacement of its pod is pending,
// or its launcher is disconnected.
bool has_left_group(const Membership& members, size_t node_rank);

// Returns whether the current attempt lacks a pod of a node rank that is not recorded as finished.
bool has_missing_pods(const Membership& members);

// Returns the pod whose /statusz reports the job's progress: node rank 0 of the current attempt while it runs and has
// an address. Null if there is no such pod.
const Pod* progress_pod(const Membership& members);

// Returns whether rank 0 was polled at `time` or later, or cannot be polled any more. An operator that was not running,
// or that polls each of many jobs rarely, must not mistake its own inactivity for that of the ranks.
bool was_polled_since(const Observed& observed, const Membership& members, SystemTime time);

// Returns whether the pod's phase is neither Succeeded nor Failed.
bool is_live(const Pod& pod);

// Returns whether the trainer container or the whole pod has terminated, successfully or not.
bool has_ended(const Pod& pod);

// Returns whether the pod has, or had, a node. A pod that runs has one, whatever its conditions are.
bool has_node(const Pod& pod);

// Returns whether the trainer's exit code is 0, or the pod's phase is Succeeded if the exit code is not known. Does not
// consider why the pod ended.
bool has_exit_code_0(const Pod& pod);

// Returns whether the pod is being stopped from outside: it is being deleted, it is the target of a disruption, or the
// kubelet terminated it as a whole (eviction, node shutdown, the pod's own deadline).
bool is_stop_requested(const Pod& pod);

// Returns whether the trainer terminated more than kClockTolerance before is_stop_requested(), as far as is known.
bool ended_before_stop(const Pod& pod);

// Returns whether the pod's part of the training is complete: has_exit_code_0(), and the exit was not caused by a
// request to stop. Many programs exit with 0 on SIGTERM, so exit code 0 of a pod that is being stopped counts only if
// the termination message has the reason Completed, as oarlock-trainer writes it, or if the trainer terminated more
// than kClockTolerance before the request.
bool has_succeeded(const Pod& pod);

// Tolerated difference between the clock of a node, which times the end of a trainer, and that of the API server, which
// times the request to stop it.
inline constexpr std::chrono::seconds kClockTolerance{10};

}  // namespace oarlock::control
