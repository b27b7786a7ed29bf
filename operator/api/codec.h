// TrainingJob <-> JSON. Times are RFC 3339 in whole seconds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/error.h"
#include "operator/api/types.h"

namespace oarlock::api {

// Reads an object of the API server; never fails. Absent fields get their default, and so do fields of a wrong type,
// counts out of the schema's range and enumerations with an unknown value; `report` names them. A failure rule with an
// unknown part is left out. A binary value stands for JSON text (kube::FieldFilter::with_text). An unknown status.phase
// is replaced by the known phase whose condition is true, by Failed where there is a completion time, else by Pending.
TrainingJob read_training_job(const nlohmann::json& object);

// The same, and kConfig with the first problem, e.g. "spec.nodes: expected an integer, got "2"".
Result<TrainingJob> training_job_from_json(const nlohmann::json& object);

// The whole object with apiVersion and kind. Defaults are written out; empty metadata and an empty status are left out.
nlohmann::json to_json(const TrainingJob& job);

nlohmann::json status_to_json(const Status& status);

// Body of PATCH .../trainingjobs/NAME/status, content type application/merge-patch+json. It carries uid and
// resourceVersion of `job`, so that the API server answers 409 when the job has changed; members of the status that are
// gone are null. Members that this version does not know stay as they are.
nlohmann::json status_patch(const Metadata& job, const Status& status);

// The same for status.conditions alone.
nlohmann::json conditions_patch(const Metadata& job, const std::vector<Condition>& conditions);

}  // namespace oarlock::api
