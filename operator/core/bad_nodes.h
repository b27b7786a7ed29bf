// Nodes on which a job has failed. Its later pods avoid them by an affinity, as long as they can be placed otherwise.
// All functions are pure; docs/operator-states.md#bad-nodes is the user's page.
//
// status.badNodes has one entry for each of these nodes. Only the node of a root cause is blamed, and the entry of a
// node is written in the status that begins the next attempt, or that records a replacement, before the pods exist. A
// pod lists the nodes that it avoids in an annotation. If it is not placed in time, the entries of these nodes become
// weaker, and a pod without a node whose list is stronger than the entries is deleted and created again.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/membership.h"
#include "operator/core/pod_failure.h"

namespace oarlock::control {

// ---- Failures of nodes ---------------------------------------------------------------------------------------------

// Returns whether the message of a failed process names a fault of the hardware, of which no program is the cause. The
// comparison ignores case.
bool mentions_hardware(std::string_view message);

// Returns whether a process ended because of the hardware: with exit code 79, or with such a message.
bool is_hardware_failure(const PodFailure& failure);

// Adds the failures to the entries of their nodes. These failures count: the trainer or an init container ended by
// itself, unless a rule makes the restart free; the kubelet rejected the pod, because it has less room than the
// scheduler assumed, or cannot allocate a device; a failure of the hardware. Disruptions, evictions and deletions do
// not count, nor do ends because of another rank.
void record_node_failures(const api::FailurePolicy& policy, const std::vector<PodFailure>& failures, SystemTime now,
                          api::Status& status);

// Adds a failure to the entry of a node if launchers have restarted all processes since the last status, while all pods
// ran: that of the rank that failed first before the last restart. `status` has the refreshed inPodRestarts and
// replacements.
void record_in_pod_failure(const Observed& observed, const Membership& members, api::Status& status);

// ---- Avoidance -----------------------------------------------------------------------------------------------------

// How long pods may wait for a node before they are created again with a weaker avoidance, or pending_timeout() if that
// is shorter. A scheduler reports within seconds that no node is suitable.
inline constexpr std::chrono::seconds kAvoidanceTime{60};

// Returns whether a pod of the current attempt avoids nodes and has neither a node nor a nominated one yet. The other
// limits of the time without a node do not apply until these pods have been placed or avoid no node any more.
bool has_avoiding_pods(const Membership& members);

// Returns when refresh_bad_nodes() next has another result although nothing else changes; absent if it never has.
std::optional<SystemTime> next_avoidance_change(const Observed& observed, const Membership& members);

// Removes the entries of nodes that are not avoided any more, and makes those weaker that keep pods from being placed,
// or may keep the API server from accepting them.
// The periods in which other nodes are awaited then begin again. Does nothing while the job is suspended.
void refresh_bad_nodes(const Observed& observed, const Membership& members, api::Status& status);

// Returns the nodes that pods which are created now avoid; absent if they avoid none. If Kueue selects the node of each
// pod, other nodes are only preferred, because Kueue does not know which nodes are avoided.
BoxedOptional<AvoidedNodes> avoided_nodes(const Job& job, const std::optional<Admission>& admission, SystemTime now);

// Deletes the pods of the current attempt that have no node and avoid nodes in a stronger way than the status. The
// deletion of a pod that has got a node in the meantime stops the plan. They are then missing, and created again.
std::vector<Action> delete_outdated_pods(const api::Status& status, const Membership& members);

// Returns the events of nodes that are avoided, or are not avoided any more, since the status `before`.
std::vector<Action> bad_node_events(const api::Status& before, const api::Status& next);

// ---- Pods ----------------------------------------------------------------------------------------------------------

// The annotation of a pod with the nodes that it avoids: node-a=Required,node-b=Preferred.
inline constexpr char kAnnotationAvoidedNodes[] = "oarlock.dev/avoided-nodes";

// Returns the value of this annotation.
std::string to_annotation(const AvoidedNodes& nodes);

// Reads the annotation of a pod, which may have been edited: ignores what to_annotation() does not write, and nodes
// beyond api::kMaxBadNodes. Absent if it names no node.
BoxedOptional<AvoidedNodes> parse_avoided_nodes(std::string_view annotation);

// Returns whether with_avoided_nodes() changes the template of the job.
bool changes_template(const Job& job, const BoxedOptional<AvoidedNodes>& nodes);

// Returns the job with a template whose pods avoid these nodes: with a node affinity that is added to that of the
// template, and the annotation. An annotation of the template has no effect. A template whose affinity has another type
// stays as it is; the API server rejects it. So does one with a nodeName. If the affinity of the template has so many
// terms that the pod would become large, other nodes are only preferred.
Job with_avoided_nodes(const Job& job, const BoxedOptional<AvoidedNodes>& nodes);

}  // namespace oarlock::control
