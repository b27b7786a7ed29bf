// The CustomResourceDefinition of TrainingJob, and its validation rules, with the same messages, for use without an API
// server. The CLI reports them with file:line:column; reconcile() validates each job before it creates objects, in
// addition to the API server.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/types.h"
#include "common/error.h"
#include "fields/validator.h"
#include "yaml/reader.h"

namespace oarlock::api {

using oarlock::FieldProblem;

// Builds the CRD, which manifests/crd contains as YAML, from the descriptions of types.cc, the schema of the parts of
// spec.template that rules refer to, and the CEL rules, whose messages are those of rules.h.
nlohmann::ordered_json custom_resource_definition();
// The same for TrainingProfile (profile.h).
nlohmann::ordered_json profile_resource_definition();

// The problems of a job that validate() returns at most.
inline constexpr size_t kMaxProblems = 100;

// Returns the violations of the schema that are possible in a decoded job; empty if the job is valid. The time and the
// memory are proportional to the size of the job.
std::vector<FieldProblem> validate(const TrainingJob& job);

// Reads and validates one document of a file. Adds a problem for each unknown key, with a suggestion (except inside
// spec.template and spec.trainer, which other programs validate), for each wrong type and for each violated rule. The
// job is valid if no problem was added.
TrainingJob training_job_from_yaml(const yaml::Node& node, yaml::Problems& problems);

// Like the function above, but fails with kConfig and one line per problem: "file:line:col: path: message".
Result<TrainingJob> training_job_from_yaml(const yaml::Node& node, const std::string& file);

}  // namespace oarlock::api
