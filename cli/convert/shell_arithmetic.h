// Arithmetic of shell scripts, $((...)), as batch scripts compute numbers of nodes and ranks.
#pragma once

#include <cctype>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace oarlock::convert {

inline bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
inline bool is_name_part(char c) { return is_name_start(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Evaluates sums, differences, products and quotients of integers and variables, with parentheses. `value_of` returns
// the text of a variable, or nothing if it is not known. Absent if the expression has something else, an unknown
// variable, or a value above a million.
std::optional<int64_t> evaluate_arithmetic(
    std::string_view expression, const std::function<std::optional<std::string>(const std::string&)>& value_of);

}  // namespace oarlock::convert
