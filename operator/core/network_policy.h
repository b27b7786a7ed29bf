// The NetworkPolicy of a job: who may connect to its pods. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/error.h"
#include "operator/core/model.h"

namespace oarlock::control {

std::string network_policy_name(std::string_view job);  // trainingjob-<job>

// The job's pods accept connections from each other on every port, and from `peers` (Observed::metrics_peers) on the
// metrics ports of their ranks. Egress is not restricted.
nlohmann::json desired_network_policy(const Job& job, std::string_view peers);

// Identifies a policy's spec, whatever the order of its keys.
std::string spec_digest(const nlohmann::json& spec);

// Checks a list of NetworkPolicyPeer given by an administrator and returns it in the form that the API server stores:
// without nulls and empty lists, so that a stored policy compares equal to the desired one. Fails with kUsage.
Result<std::string> read_metrics_peers(std::string_view json);

}  // namespace oarlock::control
