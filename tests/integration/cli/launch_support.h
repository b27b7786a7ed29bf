// oarlock launch with ranks that are shell scripts.
#pragma once

#include <string>
#include <vector>

#include "tests/support/program.h"

namespace oarlock::test {

inline std::vector<std::string> launch(std::vector<std::string> options, const std::string& script) {
  std::vector<std::string> argv = {oarlock(), "launch"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"--", "/bin/bash", "-c", script});
  return argv;
}

// "wait_for FILE" orders the ranks' ends.
inline const std::string kWaitFor = "wait_for() { until [ -e $1 ]; do read -t 0.01 < <(:) || :; done; }; ";

}  // namespace oarlock::test
