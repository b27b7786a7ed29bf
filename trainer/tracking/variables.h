// Access to the environment that the factories of sinks read.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace oarlock {

// Returns the value of a variable of the environment, or nullopt if it is not set.
using TrackingVariables = std::function<std::optional<std::string>(std::string_view name)>;

}  // namespace oarlock
