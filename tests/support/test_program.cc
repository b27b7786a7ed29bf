// The main() of a program of several test files. With --file=NAME, it runs the tests of that file only; with --update,
// it writes the golden files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>

namespace {

// Returns the filter of GoogleTest for the tests of a file; empty if there are none.
std::string filter_of(std::string_view file) {
  std::string out;
  const testing::UnitTest& program = *testing::UnitTest::GetInstance();
  for (int i = 0; i < program.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *program.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (std::filesystem::path(test.file()).filename() == file)
        out += std::string(":") + suite.name() + "." + test.name();
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kFile = "--file=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--update") continue;  // see expect_golden()
    const std::string filter = argument.starts_with(kFile) ? filter_of(argument.substr(kFile.size())) : "";
    if (filter.empty()) {
      std::cerr << argument << ": not --file=NAME with the name of a test file of this program\n";
      return 2;
    }
    if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
