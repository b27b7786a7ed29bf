// The fields of pod templates, so that `oarlock validate` reports typos without an API server.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yaml/reader.h"

namespace oarlock::cli {

// Returns the Kubernetes version whose fields the schema contains: "v1.35".
std::string pod_schema_version();

// Adds a problem for each key of a PodTemplateSpec that this version of Kubernetes does not define, with a suggestion,
// for each value of a wrong type, such as a number for an environment variable, and for each violation of pod_rules.h.
// `path` is that of the node.
void check_pod_template(const yaml::Node& node, const std::string& path, yaml::Problems& problems);

// A type of the schema and its fields, in the notation of the table: "[]Container" is a list, "{}string" a map.
struct PodSchemaType {
  std::string_view name;
  std::vector<std::pair<std::string_view, std::string_view>> fields;
};
const std::vector<PodSchemaType>& pod_schema_types();

}  // namespace oarlock::cli
