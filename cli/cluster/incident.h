// The input of `oarlock why`: the objects that it reads, and one failure with the objects that describe it. Pure
// functions.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cluster/objects.h"
#include "common/clock.h"
#include "operator/api/types.h"

namespace oarlock::cli {

// The objects that the diagnosis reads. Lists may be empty, if the user may not read them.
struct DiagnosisInput {
  api::TrainingJob job;
  std::vector<PodView> pods;      // of the current and the previous attempt
  std::vector<EventView> events;  // about the job and its pods
  std::vector<NodeView> nodes;    // on which those pods ran
  SystemTime now{};
};

// One failure of one attempt, and the objects that describe it. The pointers refer to the DiagnosisInput.
struct Incident {
  api::AttemptRecord record;
  const PodView* pod = nullptr;    // null if the pod no longer exists
  const NodeView* node = nullptr;  // null if the node was not read
  std::string text;                // the messages of the record and of the pod
};

// Returns the failure that a record of status.attempts describes.
Incident make_incident(const DiagnosisInput& input, const api::AttemptRecord& record);

// Returns the root cause of a failure of the current attempt that the operator has not recorded yet, by the operator's
// rules; nullopt if no pod failed, or if only a pod is missing, which this user may not be allowed to see.
std::optional<Incident> unrecorded_incident(const DiagnosisInput& input);

// Returns the first init container that failed; null if there is none.
const ContainerView* failed_init_container(const PodView& pod);

// Returns the node of this name; null if it was not read.
const NodeView* find_node_named(const DiagnosisInput& input, std::string_view name);

// Returns whether there is an event about the object of this name with one of the reasons.
bool has_event(const DiagnosisInput& input, const std::string& object, std::initializer_list<std::string_view> reasons);
// Returns the newest of these events; null if there is none.
const EventView* find_event(const DiagnosisInput& input, const std::string& object,
                            std::initializer_list<std::string_view> reasons);

}  // namespace oarlock::cli
