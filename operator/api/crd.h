// The CustomResourceDefinition of TrainingJob, which manifests/crd contains as YAML (crd_test --update writes it).
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace oarlock::api {

// Builds the CRD from the descriptions of types.cc, the schema of the parts of spec.template that rules refer to, and
// the CEL rules, whose messages are those of rules.h.
nlohmann::ordered_json custom_resource_definition();

}  // namespace oarlock::api
