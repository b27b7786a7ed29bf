// Golden files: compared byte by byte, rewritten by running the test program with --update.
#pragma once

#include <string>

namespace oarlock::test {

// `name` is relative to tests/data. A difference is a test failure that shows the first lines which differ.
void expect_golden(const std::string& name, const std::string& actual);

}  // namespace oarlock::test
