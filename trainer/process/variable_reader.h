// Reads environment variables and remembers the first problem, so that rules over them read as a list.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/process/environment.h"

namespace oarlock {

class VariableReader {
 public:
  // The lookup must outlive the reader.
  explicit VariableReader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  // An empty value counts as not set.
  std::optional<std::string> text(std::string_view name) const;
  bool has(std::string_view name) const { return text(name).has_value(); }
  // Nothing, and a problem, where the value is not an integer in [low, high].
  std::optional<int> integer(std::string_view name, int low, int high);

  void problem(std::string message);
  const std::optional<Error>& error() const { return error_; }

 private:
  const EnvironmentLookup& lookup_;
  std::optional<Error> error_;
};

}  // namespace oarlock
