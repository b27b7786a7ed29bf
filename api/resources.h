// Quantities of Kubernetes and the number of ranks that follows from them. All functions are pure and thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "api/types.h"
#include "fields/fields.h"

namespace oarlock::api {

// Returns whether the API server accepts the value as the quantity of a resource: a number that is not negative, or a
// string such as "500m" or "10Gi".
bool is_quantity(const nlohmann::json& value);

// For messages about a value that is not a quantity: "such as 4, 500m or 16Gi"; for "64GB": "such as 64G or 64Gi".
std::string similar_quantities(const nlohmann::json& value);

// Returns the value of a quantity; 0 for any other value.
double quantity_value(const nlohmann::json& value);

// Calls `visit` for each value in a PodSpec that must be a quantity, with its path, which begins with `path`, and the
// name of its resource; the name is empty for a value that is not in a map of resources, such as sizeLimit. The values
// need not be quantities. The tree must not be nested so deeply that the recursion exhausts the stack. The text of a
// path contains the keys of the template, which may be long: a visitor should not request it for each value.
using QuantityVisitor =
    std::function<void(const FieldPath& path, std::string_view resource, const nlohmann::json& quantity)>;
void visit_quantities(const nlohmann::json& pod_spec, const FieldPath& path, const QuantityVisitor& visit);

// Returns whether the resource name has a domain, as those of accelerators have: "nvidia.com/gpu". Containers must
// limit such a resource, because it cannot be overcommitted.
bool is_extended_resource(std::string_view name);

// Returns the number of GPUs in a map of limits: the sum of the resources of NVIDIA's, AMD's and Intel's device
// plugins, with MIG partitions and shared GPUs. Memory and other shares of a GPU are not counted.
int64_t count_gpus(const nlohmann::json& limits);

// Returns whether the API server accepts the quantity as the amount of an extended resource, which cannot be divided.
// It rounds up to thousandths first. The value must be a quantity.
bool is_whole_quantity(const nlohmann::json& quantity);

// Sets the number of processes of a spec whose field is "auto", or is absent while spec.resourcesPerNode is present:
// the GPUs in the limits of the container "trainer", in which the template's entries replace those of
// spec.resourcesPerNode; 1 without GPUs, and at most kMaxProcessesPerNode. A spec with a number is left unchanged. A
// template above kMaxTemplateBytes, which validate() reports, counts as none.
void resolve_processes_per_node(Spec& spec);

// Returns whether a spec whose number of processes follows from its GPUs has more of them than a pod can have ranks.
bool has_too_many_gpus(const Spec& spec);

}  // namespace oarlock::api
