// Reads the elements of a JSON list one after the other, in a time that is proportional to the size of the file.
#pragma once

#include <cstddef>
#include <functional>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock {

// Limits of one element, so that no file can exhaust the memory or the stack.
inline constexpr size_t kMaxListElementDepth = 100;         // functions on JSON are recursive
inline constexpr size_t kMaxListElementValues = 8'000'000;  // values, lists and objects

// Returns the message of an error of nlohmann's parser, with the line and without the name of the exception. Shortened,
// because it quotes a token of any length.
std::string json_problem(const nlohmann::detail::exception& error);

// Calls `take` with each element of the list that the stream contains, and stops at its first error. Fails with
// kDataErr, without the name of the file, if the text is not a JSON list or an element exceeds a limit. Messages call
// an element `noun`, with its index.
Result<void> read_json_list(std::istream& in, std::string_view noun,
                            const std::function<Result<void>(const nlohmann::json&)>& take);

}  // namespace oarlock
