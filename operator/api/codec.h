// TrainingJob <-> JSON. Times are RFC 3339 in whole seconds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/error.h"
#include "operator/api/types.h"

namespace oarlock::api {

// An object of the API server. Fields that are not known are ignored (a newer CRD may have them), absent ones get their
// default. kConfig names the path of a field that has the wrong type, e.g. "spec.nodes: expected an integer, got "2"".
Result<TrainingJob> training_job_from_json(const nlohmann::json& object);

// The whole object with apiVersion and kind. Defaults are written out; empty metadata and an empty status are left out.
nlohmann::json to_json(const TrainingJob& job);

nlohmann::json status_to_json(const Status& status);

// Body of PATCH .../trainingjobs/NAME/status, content type application/merge-patch+json. It carries uid and
// resourceVersion of `job`, so that the API server answers 409 when the job has changed; members of the status that are
// gone are null.
nlohmann::json status_patch(const Metadata& job, const Status& status);

}  // namespace oarlock::api
