// Numbers of things in messages: "1 node", "2 nodes".
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace oarlock {

// Formats a number with its noun, whose plural ends in "s" unless it is given.
template <std::integral Number>
std::string counted(Number number, std::string_view noun, std::string_view plural = "") {
  if (number == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", number, noun) : fmt::format("{} {}", number, plural);
}

}  // namespace oarlock
