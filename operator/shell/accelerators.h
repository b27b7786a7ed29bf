// What a job asks for besides processors and memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace oarlock::control {

// Extended resources ("nvidia.com/gpu", "amd.com/gpu" ...) of all containers of a pod, by name, from the JSON of its
// template. Kubernetes has them as whole numbers, among the limits; each is at most a million here. Of a
// template with more than eight resources some are left out, and one of more than 256 KiB is not read. Pure.
std::map<std::string, int64_t> accelerators_of(const std::string& pod_template);

}  // namespace oarlock::control
