// Conversion between TrainingJob and JSON. Times are RFC 3339 in whole seconds. All functions are pure and thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/types.h"
#include "common/error.h"

namespace oarlock::api {

// Reads an object of the API server. It never fails: absent fields, fields of a wrong type, counts outside the schema's
// range and unknown enumeration values get the default, and `report` lists all but the absent ones. A failure rule with
// an unknown member or value is dropped. A binary value contains JSON text (kube::FieldFilter::with_text). If the
// status has a profile, the spec is the merged one (profile.h), unless report.profile_problem is set. An unknown
// status.phase is replaced by the known phase whose condition is true; otherwise by Failed if there is a completion
// time, or by Pending.
TrainingJob read_training_job(const nlohmann::json& object);

// Like read_training_job(), but fails with kConfig and the first problem, also of the merge with the profile, such as
// "spec.nodes: expected an integer, got "2"".
Result<TrainingJob> training_job_from_json(const nlohmann::json& object);

// Returns the whole object with apiVersion and kind. Fields with default values are included; empty metadata fields and
// an empty status are omitted.
nlohmann::json to_json(const TrainingJob& job);

nlohmann::json status_to_json(const Status& status);

// Returns the body of PATCH .../trainingjobs/NAME/status with the content type application/merge-patch+json. It
// contains the uid and the resourceVersion of `job`, so that the API server responds with 409 if the job has changed.
// Absent members of the status are null, which removes them. Members that this version does not know stay as they are.
nlohmann::json status_patch(const Metadata& job, const Status& status);

// Returns the body of such a patch for status.conditions alone.
nlohmann::json conditions_patch(const Metadata& job, const std::vector<Condition>& conditions);

}  // namespace oarlock::api
