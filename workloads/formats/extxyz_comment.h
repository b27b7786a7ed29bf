// The comment line of an extended XYZ frame, which contains keys and values. The format is described in
// https://github.com/libAtoms/extxyz and implemented in ase.io.extxyz.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace oarlock {

// The values by key, without quotes. A key without a value has the value "T".
using ExtxyzInfo = std::map<std::string, std::string, std::less<>>;

// Parses key=value pairs. Keys and values may be quoted (with the escapes \" \\ \n), and values may be in {braces} or
// [brackets]. The last value of a repeated key is used. Returns kDataErr if a quote or bracket is not closed; the
// message does not name a file.
Result<ExtxyzInfo> parse_extxyz_comment(std::string_view line);

// Parses the numbers of a value such as "1 2 3", [1, 2, 3], {1 2 3} or "_JSON [1, 2, 3]". Returns kDataErr if a word is
// not a number.
Result<std::vector<double>> extxyz_numbers(std::string_view value);

// Parses booleans in the same way: T, true, True, 1 and F, false, False, 0.
Result<std::vector<bool>> extxyz_flags(std::string_view value);

}  // namespace oarlock
