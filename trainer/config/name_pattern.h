// Regular expressions that select parameters by their names: optimizer.groups[].match.
#pragma once

#include <regex>
#include <string>

#include "common/error.h"

namespace oarlock {

// An ECMAScript regular expression, except for the parts whose matching takes exponential time. Searching a name takes
// time proportional to its length times the size of the pattern, or to the square of the length with a lookahead.
class NamePattern {
 public:
  // The maximum number of characters, multiplied by the upper bound of every counted repetition.
  static constexpr int kMaxSize = 512;

  // Fails with kConfig and a message without the place if the text is not a regular expression, is too large, has a
  // back-reference, or has a lookahead that contains another one or an assertion about the text before it (^, \b, \B).
  static Result<NamePattern> parse(const std::string& text);

  // Returns whether the pattern matches any part of the name.
  bool is_found_in(const std::string& name) const { return std::regex_match(name, pattern_); }

 private:
  explicit NamePattern(std::regex pattern) : pattern_(std::move(pattern)) {}

  std::regex pattern_;  // of whole names
};

}  // namespace oarlock
