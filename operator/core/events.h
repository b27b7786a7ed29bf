// The events that report what a plan's status changes.
#pragma once

#include <vector>

#include "operator/core/model.h"

namespace oarlock::control {

// Events about the first status of a job.
std::vector<Action> start_events(const Job& job);

// The event of a change of spec.nodes that makes an elastic job invalid. It is emitted once, before the status has the
// generation of that change.
std::vector<Action> ignored_scale_events(const Job& job);

// The event of a change to Running or Stalled.
std::vector<Action> running_events(api::Phase before, const api::Status& next);

// The events of recoveries and of restarts in the pods that were reported since the last status.
std::vector<Action> recovery_events(const api::Status& before, const api::Status& next);

// The event of a change of the nodes that train, while the attempt continues.
std::vector<Action> in_place_events(const api::Status& before, const api::Status& next);

}  // namespace oarlock::control
