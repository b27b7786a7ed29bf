// Gang scheduling: the pods of an attempt are placed together or not at all. Kubernetes, scheduler-plugins and Volcano
// each have a kind PodGroup for it, in separate APIs. The operator uses the ones that the API server serves;
// docs/guides/queues.md is the user's page. All functions are pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "operator/core/membership.h"

namespace oarlock::control {

// How pods name their PodGroup: the label of scheduler-plugins, and the annotation of Volcano; and the annotation with
// Volcano's queue.
inline constexpr char kPodGroupLabel[] = "scheduling.x-k8s.io/pod-group";
inline constexpr char kGroupNameAnnotation[] = "scheduling.k8s.io/group-name";
inline constexpr char kVolcanoQueue[] = "scheduling.volcano.sh/queue-name";

// Group and version of one of these APIs.
struct GangApiNames {
  GangApi api = GangApi::kNative;
  const char* group = "";
  const char* version = "";
};
std::span<const GangApiNames> gang_apis();
const GangApiNames& names_of(GangApi api);

// Returns the PodGroup that a pod, or a pod template, names; absent if it names none. If it names several, the first
// one of gang_apis().
std::optional<Gang> read_gang(const nlohmann::json& pod);

// Returns the job with a template whose pods belong to the PodGroup.
Job with_gang(const Job& job, const Gang& gang);

// Returns the PodGroup of the pods of status.attempt that are created now: that of their peers, so that a group is
// never divided; otherwise the one that exists for the attempt; otherwise that of the API which the template's
// scheduler reads. Absent if no API is served, if fewer than two pods must start together, if the template names a
// group, and once a peer has a node or has finished: schedulers count the pods of a PodGroup that have not finished, so
// that a pod which joins after another has finished would wait for ever.
std::optional<Gang> find_gang(const Observed& observed, const Membership& members);

// Returns the action that creates this PodGroup, or if there is none, that of pods of the attempt that have no node
// yet; none if it exists. Its minimum is the number of nodes with which the attempt can start.
std::vector<Action> create_pod_group(const Observed& observed, const Membership& members, std::optional<Gang> gang);

// Returns the actions that delete the PodGroups of earlier attempts, and of a job that has ended or is suspended, once
// no live pod belongs to them. A PodGroup takes room in a queue of Volcano as long as it exists.
std::vector<Action> delete_pod_groups(const Observed& observed, const Membership& members);

}  // namespace oarlock::control
