// "did you mean": the known name nearest to what somebody typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace oarlock {

// Damerau-Levenshtein distance (restricted: adjacent transpositions), ignoring case, '_' and '-'.
int edit_distance(std::string_view a, std::string_view b);

// The nearest candidate if it is near enough to be a typing error (at most a third of the length), else "".
std::string suggest(std::string_view typed, const std::vector<std::string>& candidates);

}  // namespace oarlock
