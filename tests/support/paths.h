// Paths of this checkout and of its build directory. They are compiled into one file only, so that clones share all
// other files of the tests in the compiler cache.
#pragma once

#include <string>
#include <string_view>

namespace oarlock::test {

// Returns the path of `name` in tests/data.
std::string data_path(std::string_view name);

// Returns the path of a file of the checkout, such as "docs/cli.md"; that of the checkout itself without a name.
std::string source_path(std::string_view name = "");

// Returns the path of a program in the build directory, such as "oarlock-trainer".
std::string program_path(std::string_view name);

}  // namespace oarlock::test
