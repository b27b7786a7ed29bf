#include "tests/support/golden.h"
#include "tests/support/paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace oarlock::test {
namespace {

bool is_update() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string line((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> arguments;
  std::istringstream rest(line);
  for (std::string argument; std::getline(rest, argument, '\0');) arguments.push_back(argument);
  return std::find(arguments.begin(), arguments.end(), "--update") != arguments.end();
}

}  // namespace

void expect_golden(const std::string& name, const std::string& actual) {
  const std::filesystem::path path = std::filesystem::path(test::data_path(name));
  if (is_update()) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << actual;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path << " is not there; run this test with --update to write it";
  const std::string expected((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(expected, actual) << path
                              << " differs; if intended, run this test with --update and give a reason in the commit";
}

}  // namespace oarlock::test
