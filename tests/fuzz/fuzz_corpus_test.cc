// Replays the corpora of all fuzzers in the ordinary build: no reader may crash, hang, or break a property that its
// fuzzer asserts, for any input that once failed. A property that does not hold ends the program; the last printed path
// is the input.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "common/files.h"
#include "tests/support/paths.h"

// fuzzers.inc has a line FUZZER(name) for each fuzzer; the build renames LLVMFuzzerTestOneInput() of name.cc to name().
#define FUZZER(name) extern "C" int name(const uint8_t* data, size_t size);
#include "fuzzers.inc"
#undef FUZZER

using namespace oarlock;

namespace {

struct Fuzzer {
  std::string name;
  int (*test_one_input)(const uint8_t*, size_t);
};

const std::vector<Fuzzer>& fuzzers() {
  static const std::vector<Fuzzer> all = {
#define FUZZER(name) {#name, name},
#include "fuzzers.inc"
#undef FUZZER
  };
  return all;
}

class FuzzCorpus : public testing::TestWithParam<Fuzzer> {};

TEST_P(FuzzCorpus, Replays) {
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(test::source_path("tests/fuzz/corpus")) / GetParam().name))
    inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  ASSERT_FALSE(inputs.empty());
  for (const std::filesystem::path& input : inputs) {
    std::cerr << input.string() << "\n";
    const Result<std::string> bytes = read_file(input);
    ASSERT_TRUE(bytes) << bytes.error().message;
    GetParam().test_one_input(reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size());
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzCorpus, testing::ValuesIn(fuzzers()),
                         [](const auto& fuzzer) { return fuzzer.param.name; });

}  // namespace
