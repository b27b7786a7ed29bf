// Rejections of pods by the API server.
#pragma once

#include <optional>
#include <string>

#include "operator/core/model.h"

namespace oarlock::control {

// Returns why the API server cannot accept the pods of a job, whatever the state of the cluster: an unknown field or an
// invalid value. Paths in the pod become paths in the job, such as
// "spec.template.spec.containers[0].resouces: unknown field". Returns nothing for other rejections: a quota, an
// admission webhook or a policy may accept the same pod later, and so may the API server if it rejects a field or a
// limit that admission added (a LimitRange, a mutating webhook).
//
// `status` and `message` are those of the response to the request that created a pod of the job.
std::optional<std::string> explain_invalid_pod(const Job& job, int status, const std::string& message);

}  // namespace oarlock::control
