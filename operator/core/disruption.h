// Nodes that are about to be drained or removed: a job that runs on one is requested to save a checkpoint while all its
// ranks still train. All functions are pure; docs/operator-states.md#impending-disruptions is the user's page.
//
// The request is in the status before it is sent, with each poll of rank 0 (common/status_query.h), so that it survives
// a restart of the operator and of rank 0, and is made once for each node.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "operator/core/membership.h"

namespace oarlock::control {

// Returns whether the taint announces that the node is about to be drained or removed.
bool announces_disruption(std::string_view taint);

// Returns whether the condition of a node announces this while it is true.
bool is_disruption_condition(std::string_view type);

// Sets status.disruption to the nodes of running pods that have a warning, or whose pod has the condition
// DisruptionTarget, and the time of the request to now if a node is new. A node remains while the warnings are unknown,
// and for ten minutes after the request. Removes it if the job does not run.
void refresh_disruption(const Observed& observed, const Membership& members, api::Status& status);

// Returns the number of the request that rank 0 is polled with: the Unix time in seconds at which it was made; absent
// without a request.
std::optional<int64_t> checkpoint_request(const api::Status& status);

// Returns the event of a request that the status `before` does not have.
std::vector<Action> disruption_events(const api::Status& before, const api::Status& next);

}  // namespace oarlock::control
