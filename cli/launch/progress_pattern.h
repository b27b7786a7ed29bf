// Progress from the log lines of a program that cannot be changed.
#pragma once

#include <optional>
#include <regex>
#include <string>
#include <string_view>

#include "common/contract.h"
#include "common/error.h"

namespace oarlock::launch {

// A regular expression of ECMAScript whose first group is the step, and the second, which is optional, the loss.
class ProgressPattern {
 public:
  static constexpr size_t kMaxLineBytes = 1024;  // of a line; the rest of a longer one is not searched

  // Fails with kUsage if the expression is invalid, has no group, or refers back to a group: it is matched in
  // polynomial time.
  static Result<ProgressPattern> make(const std::string& expression);

  // Returns the report of a line; nothing if it does not match, or the first group is not a number.
  std::optional<ProgressReport> match(std::string_view line) const;

 private:
  explicit ProgressPattern(std::regex expression) : expression_(std::move(expression)) {}
  std::regex expression_;
};

}  // namespace oarlock::launch
