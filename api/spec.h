// The spec of a TrainingJob (types.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/boxed_optional.h"
#include "common/contract.h"
#include "fields/fields.h"

namespace oarlock::api {

// The effect of a pod's failure on the group.
enum class FailureAction {
  kRestart,      // restart the group, counted against maxRestarts unless the attempt made progress
  kRestartFree,  // restart the group without counting
  kFail,         // fail the job
  kIgnore,       // treat the pod as done
};

enum class ExitCodeOperator { kIn, kNotIn };

// Same as onExitCodes of a Job's podFailurePolicy, for the container "trainer".
struct ExitCodeMatch {
  ExitCodeOperator operation = ExitCodeOperator::kIn;
  std::vector<int64_t> values;

  bool operator==(const ExitCodeMatch&) const = default;
};

enum class PodConditionType { kDisruptionTarget };
enum class PodConditionStatus { kTrue };

// The only condition that a rule can match is DisruptionTarget=True.
struct PodConditionMatch {
  PodConditionType type = PodConditionType::kDisruptionTarget;
  PodConditionStatus status = PodConditionStatus::kTrue;

  bool operator==(const PodConditionMatch&) const = default;
};

// A rule of failurePolicy. Exactly one of the three requirements is set.
struct FailureRule {
  FailureAction action = FailureAction::kRestart;
  std::optional<ExitCodeMatch> on_exit_codes;
  std::vector<std::string> on_pod_reasons;           // matches any of them
  std::vector<PodConditionMatch> on_pod_conditions;  // matches any of them

  bool operator==(const FailureRule&) const = default;
};

// The scope of a restart after a recoverable failure.
enum class RestartScope {
  kGroup,  // all pods
  kRank,   // failed ranks, in their pods; lost pods are replaced; other ranks keep their state (docs/recovery.md)
};

struct FailurePolicy {
  int max_restarts = 3;  // charged restarts before the job fails
  // Charged restarts and those after progress before the job fails; absent: a multiple of max_restarts
  // (control::total_restart_limit()).
  std::optional<int> max_total_restarts;
  std::optional<int> max_failures_at_step;  // without progress between them, before the job fails; absent: no limit
  int backoff_seconds = 10;         // delay before the second of several consecutive quick restarts; then doubles
  int avoid_nodes_after = 2;        // failures of a node before the pods must avoid it; 0: no node is avoided
  int avoid_nodes_seconds = 86400;  // since the last failure of a node, until it is not avoided any more
  std::vector<FailureRule> rules;   // the first rule that matches a pod applies
  RestartScope restart_scope = RestartScope::kGroup;

  // Whether the launchers of several ranks restart those that fail.
  bool restarts_ranks() const { return restart_scope == RestartScope::kRank && max_restarts > 0; }

  bool operator==(const FailurePolicy&) const = default;
};

enum class StallAction {
  kNone,     // the job is Stalled until the next step
  kRestart,  // the group restarts as after a failure
};

struct StallPolicy {
  int timeout_seconds = 600;         // time without an optimizer step of rank 0 after which the job is Stalled
  int start_timeout_seconds = 1800;  // from a restart until the first step, of a program that has reported steps
  StallAction action = StallAction::kNone;

  bool operator==(const StallPolicy&) const = default;
};

enum class PendingAction {
  kRetry,  // the pods are deleted, and created again after a delay
  kFail,   // the job fails
};

// How the pods of a job are placed in domains of nodes.
enum class TopologyMode {
  kRequired,   // all in one domain
  kPreferred,  // in one domain as far as they fit
  kExclusive,  // all in one domain, in which no other job has pods
};

struct Topology {
  std::string key;  // of a label of nodes: those with the same value are one domain
  TopologyMode mode = TopologyMode::kRequired;

  bool operator==(const Topology&) const = default;
};

// The placement of the pods on nodes.
struct Scheduling {
  std::optional<int> pending_timeout_seconds;  // absent: the operator's default
  PendingAction pending_action = PendingAction::kRetry;
  BoxedOptional<Topology> topology;

  bool operator==(const Scheduling&) const = default;
};

// Which pods of a finished job are deleted.
enum class CleanPodPolicy { kRunning, kAll, kNone };

// Which ranks must succeed for the job to be Complete.
enum class SuccessPolicy { kAllRanks, kRank0 };

// Bounds of the number of nodes, and the delays before a group runs with another number than spec.nodes.
struct Elastic {
  int min_nodes = 1;
  std::optional<int> max_nodes;    // absent: the limit of spec.nodes
  int shrink_after_seconds = 240;  // time without enough nodes before the group continues with fewer
  int grow_after_seconds = 1800;   // time with fewer nodes before the group restarts with spec.nodes; 0: never

  bool operator==(const Elastic&) const = default;
};

// Whether the launcher is put into pods whose image does not contain it.
enum class LauncherInjection { kAuto, kAlways, kNever };

// Checks of all nodes by their launchers before the ranks start.
struct Preflight {
  int timeout_seconds = 300;  // until all launchers must have connected to that of node rank 0
  std::optional<int> min_bandwidth_mbps;
  std::optional<int> max_latency_microseconds;

  bool operator==(const Preflight&) const = default;
};

struct Rendezvous {
  int port = kDefaultMasterPort;  // MASTER_PORT

  bool operator==(const Rendezvous&) const = default;
};

inline constexpr char kAuto[] = "auto";  // the name that spec.processesPerNode can have

// Resources of the container "trainer" of each pod: a ResourceRequirements without claims. Each member is a map of
// quantities as JSON text, or empty.
struct Resources {
  std::string requests;
  std::string limits;

  bool operator==(const Resources&) const = default;
};

// The storage of a job's checkpoints. Exactly one of claim_name and size is set.
struct Checkpoints {
  std::string claim_name;                         // an existing PersistentVolumeClaim
  std::string size;                               // a quantity: the operator creates a claim of this size
  std::optional<std::string> storage_class_name;  // of that claim; absent: the cluster's default class

  bool operator==(const Checkpoints&) const = default;
};

// spec.managedBy of jobs that this operator manages.
inline constexpr char kManagedBy[] = "oarlock.dev/operator";
// spec.managedBy of jobs that Kueue runs in other clusters.
inline constexpr char kManagedByMultiKueue[] = "kueue.x-k8s.io/multikueue";

struct Spec {
  int nodes = 1;  // pods in the group; the desired number if the job is elastic
  // Name of the TrainingProfile (profile.h); empty: none; absent: the default one, if it exists.
  std::optional<std::string> profile;
  BoxedOptional<Elastic> elastic;
  int processes_per_node = 1;  // ranks in each pod; for auto, the number that resolve_processes_per_node() computed
  NumberForm processes_from = NumberForm::kNumber;  // how processesPerNode is given; kName: auto
  std::string image;  // of the container "trainer" if the template does not name one; empty: the operator's default
  BoxedOptional<Resources> resources_per_node;
  BoxedOptional<Checkpoints> checkpoints;
  // A PodTemplateSpec as JSON text; empty if there is none. A JSON tree would use ten times the memory.
  std::string pod_template;
  std::string trainer;  // configuration of the trainer as JSON text; empty if there is none
  LauncherInjection launcher = LauncherInjection::kAuto;
  FailurePolicy failure_policy;
  StallPolicy stall_policy;
  BoxedOptional<Preflight> preflight;  // absent: the ranks start without one
  Scheduling scheduling;
  Rendezvous rendezvous;
  bool suspend = false;
  SuccessPolicy success_policy = SuccessPolicy::kAllRanks;
  CleanPodPolicy clean_pod_policy = CleanPodPolicy::kRunning;
  std::optional<int64_t> active_deadline_seconds;  // counted from the first start, or from the last resume
  std::optional<int> ttl_seconds_after_finished;
  std::string managed_by;  // empty or kManagedBy if this operator manages the job

  bool is_managed_elsewhere() const { return !managed_by.empty() && managed_by != kManagedBy; }
  bool is_managed_by_multikueue() const { return managed_by == kManagedByMultiKueue; }

  bool operator==(const Spec&) const = default;
};

}  // namespace oarlock::api
