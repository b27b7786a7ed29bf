#include "ddp/environment_variables.h"

#include <fmt/format.h>

#include <cstdlib>

#include "common/number.h"

namespace oarlock {

EnvironmentLookup process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::optional<std::string> VariableReader::text(std::string_view name) const {
  std::optional<std::string> value = lookup_(name);
  if (value && value->empty()) value.reset();
  return value;
}

std::optional<int> VariableReader::integer(std::string_view name, int low, int high) {
  const std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  const std::optional<int> number = parse_integer<int>(*value);
  if (number && *number >= low && *number <= high) return number;
  const std::string range =
      high == kUnbounded ? fmt::format("of at least {}", low) : fmt::format("from {} to {}", low, high);
  problem(fmt::format("{}='{}' is not an integer {}; correct it or unset it", name, *value, range));
  return std::nullopt;
}

void VariableReader::problem(const std::string& message) {
  if (!error_) error_ = Error{ExitCode::kConfig, "environment: " + message};
}

}  // namespace oarlock
