// Environment variables as input: a lookup that tests replace, and a reader that keeps the first problem.
// LibTorch-free.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock {

// Returns the value of a variable, or nullopt if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Looks up the environment of this process.
EnvironmentLookup process_environment();

// Reads environment variables and keeps the first problem, so that rules can be written as a list.
class VariableReader {
 public:
  static constexpr int kUnbounded = std::numeric_limits<int>::max();

  // The lookup must outlive the reader.
  explicit VariableReader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  // An empty value counts as not set.
  std::optional<std::string> text(std::string_view name) const;
  bool has(std::string_view name) const { return text(name).has_value(); }

  // Returns nullopt and reports a problem if the value is not an integer in [low, high].
  std::optional<int> integer(std::string_view name, int low, int high);

  // Reports a problem, which becomes a kConfig error.
  void problem(const std::string& message);

  // The first problem.
  const std::optional<Error>& error() const { return error_; }

 private:
  const EnvironmentLookup& lookup_;
  std::optional<Error> error_;
};

}  // namespace oarlock
