#include <gtest/gtest.h>

#include <string>

#include "common/json_access.h"
#include "common/text.h"

namespace oarlock {
namespace {

TEST(JsonDepth, CountsLevelsOutsideOfStrings) {
  EXPECT_EQ(json_depth("1"), 0);
  EXPECT_EQ(json_depth("{}"), 1);
  EXPECT_EQ(json_depth(R"({"a": [1, {"b": []}], "c": {}})"), 4);
  EXPECT_EQ(json_depth(R"(["[[[", "\\\"[["])"), 1);
  EXPECT_EQ(json_depth(std::string(100'000, '[')), 100'000);
}

TEST(ParseUntrustedJson, RefusesDeepAndLargeText) {
  EXPECT_EQ(parse_untrusted_json(R"({"a": [1]})").dump(), R"({"a":[1]})");
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_FALSE(parse_untrusted_json(deep).is_discarded());
  EXPECT_TRUE(parse_untrusted_json("[" + deep + "]").is_discarded());
  EXPECT_TRUE(parse_untrusted_json(std::string(1 << 20, '[')).is_discarded());
  EXPECT_FALSE(parse_untrusted_json("\"12345678\"", 10).is_discarded());
  EXPECT_TRUE(parse_untrusted_json("\"123456789\"", 10).is_discarded());
  EXPECT_FALSE(parse_untrusted_json("[[1]]", 10, 2).is_discarded());
  EXPECT_TRUE(parse_untrusted_json("[[[1]]]", 10, 2).is_discarded());
  EXPECT_TRUE(parse_untrusted_json("no JSON").is_discarded());
}

}  // namespace
}  // namespace oarlock
