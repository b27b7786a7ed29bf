#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

std::string join(std::string directory, std::string_view name) {
  if (!name.empty()) directory.append("/").append(name);
  return directory;
}

}  // namespace

std::string data_path(std::string_view name) { return join(OARLOCK_SOURCE "/tests/data", name); }

std::string source_path(std::string_view name) { return join(OARLOCK_SOURCE, name); }

std::string program_path(std::string_view name) { return join(OARLOCK_BIN, name); }

}  // namespace oarlock::test
