#include "trainer/process/variable_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace oarlock {

std::optional<std::string> VariableReader::text(std::string_view name) const {
  std::optional<std::string> value = lookup_(name);
  if (value && value->empty()) value.reset();
  return value;
}

std::optional<int> VariableReader::integer(std::string_view name, int low, int high) {
  const std::optional<std::string> value = text(name);
  if (!value) return std::nullopt;
  int number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  const bool whole = error == std::errc() && end == value->data() + value->size();
  if (whole && number >= low && number <= high) return number;
  const std::string range = high == std::numeric_limits<int>::max() ? fmt::format("of at least {}", low)
                                                                    : fmt::format("from {} to {}", low, high);
  problem(fmt::format("{}='{}' is not an integer {}; correct it or unset it", name, *value, range));
  return std::nullopt;
}

void VariableReader::problem(std::string message) {
  if (!error_) error_ = Error{ExitCode::kConfig, "environment: " + std::move(message)};
}

}  // namespace oarlock
