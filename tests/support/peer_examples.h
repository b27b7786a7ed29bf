// Files of other projects' Go modules, which scripts/setup cluster fetches.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace oarlock::test {

// Returns the directory of the files, as scripts/lib/cluster/versions.sh names it.
inline std::filesystem::path peer_examples() {
  ProgramOptions options;
  if (const char* cache = std::getenv("XDG_CACHE_HOME")) options.environment["XDG_CACHE_HOME"] = cache;
  Program script({"/bin/bash", "-c",
                  "source \"$1/scripts/lib/common.sh\" && source \"$1/scripts/lib/cluster/versions.sh\" && "
                  "peer_examples",
                  "bash", test::source_path()},
                 options);
  if (script.wait() != 0) throw std::runtime_error(script.err());
  std::string path = script.out();
  while (path.ends_with('\n')) path.pop_back();
  return path;
}

}  // namespace oarlock::test
