#include "common/text.h"

#include <gtest/gtest.h>

#include <string>

namespace oarlock {
namespace {

TEST(JsonDepth, CountsLevelsOutsideOfStrings) {
  EXPECT_EQ(json_depth("1"), 0);
  EXPECT_EQ(json_depth("{}"), 1);
  EXPECT_EQ(json_depth(R"({"a": [1, {"b": []}], "c": {}})"), 4);
  EXPECT_EQ(json_depth(R"(["[[[", "\\\"[["])"), 1);
  EXPECT_EQ(json_depth(std::string(100'000, '[')), 100'000);
}

}  // namespace
}  // namespace oarlock
