// The second line of an extended XYZ frame: keys and values. Format: https://github.com/libAtoms/extxyz and
// ase.io.extxyz.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace oarlock {

// By key; the value's text without its quotes, and "T" for a key that stands alone.
using ExtxyzInfo = std::map<std::string, std::string, std::less<>>;

// key=value with either in quotes (\" \\ \n inside), {braces} or [brackets]. Of a key given twice the last counts.
// kDataErr, without a place: what does not end.
Result<ExtxyzInfo> parse_extxyz_comment(std::string_view line);

// The numbers of a value such as "1 2 3", [1, 2, 3] or {1 2 3}. kDataErr, without a place: another word.
Result<std::vector<double>> extxyz_numbers(std::string_view value);

// The same for T, true, True, 1 and F, false, False, 0.
Result<std::vector<bool>> extxyz_flags(std::string_view value);

// A finite or infinite number, or NaN, with nothing behind it; a leading + may be there.
bool parse_number(std::string_view word, double& value);

}  // namespace oarlock
