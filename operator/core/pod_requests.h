// The resources that a pod requests, and so the quota that it uses. All functions are pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace oarlock::control {

// Amounts by the name of the resource.
using PodRequests = std::map<std::string, double>;

// Returns the requests of a PodSpec as the scheduler computes them, from its containers, sidecars and init containers,
// the resources of the pod and its overhead. A limit without a request is a request. Resource claims count by the name
// of their template, or their own. Values of other types than those of a PodSpec count as absent.
PodRequests pod_requests(const nlohmann::json& pod_spec);

}  // namespace oarlock::control
