// The rules of the CRD, applied offline: same rules, same messages. The CLI uses them with file:line:column; reconcile
// uses them as its second line of defence.
#pragma once

#include <string>
#include <vector>

#include "common/error.h"
#include "common/yaml/reader.h"
#include "operator/api/types.h"

namespace oarlock::api {

struct FieldProblem {
  std::string path;  // "spec.nodes"
  std::string message;

  bool operator==(const FieldProblem&) const = default;
};

// Every rule of the schema that a decoded job can still break; empty: valid.
std::vector<FieldProblem> check(const TrainingJob& job);

// One document of a file. Adds a problem for each unknown key, with a suggestion (not inside spec.template and
// spec.trainer, which other programs check), each wrong type, and each broken rule. The job is valid if none was added.
TrainingJob training_job_from_yaml(const yaml::Node& node, yaml::Problems& problems);
// The same with problems of its own. kConfig with one line per problem: "file:line:col: path: message".
Result<TrainingJob> training_job_from_yaml(const yaml::Node& node, const std::string& file);

}  // namespace oarlock::api
