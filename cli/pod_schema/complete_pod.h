// Rules of the API server that need the whole pod, as the operator creates it: spec.template is merged with other parts
// of the job, so that its containers, ports and resources are known only then.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "fields/validator.h"

namespace oarlock::cli {

// Returns the violations in a pod whose template has no problem of pod_schema.h. Paths begin at the pod:
// "spec.containers[0].ports[1].name".
std::vector<FieldProblem> check_complete_pod(const nlohmann::json& pod);

}  // namespace oarlock::cli
