#include "trainer/config/metric_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace oarlock {
namespace {

using testing::HasSubstr;

std::string renamed(const std::string& json, const std::string& name) {
  const Result<MetricNames> names = MetricNames::parse(json);
  EXPECT_TRUE(names) << json << ": " << names.error().message;
  return names ? names->of(name) : "";
}

TEST(MetricNames, ReplacesNamesAndBeginnings) {
  const std::string json = R"({"loss": "train/loss", "eval/": "val_", "eval/mse_de": "val_de_mse", "a/b/": "c/"})";
  EXPECT_EQ(renamed(json, "loss"), "train/loss");
  EXPECT_EQ(renamed(json, "eval/mse"), "val_mse");
  EXPECT_EQ(renamed(json, "eval/mse_de"), "val_de_mse");
  EXPECT_EQ(renamed(json, "eval/a/b"), "val_a/b");
  EXPECT_EQ(renamed(json, "a/b/d"), "c/d");
  for (const char* other : {"epoch", "eval", "a/b", "losses", "/", "", "test/eval/mse"})
    EXPECT_EQ(renamed(json, other), other);
  EXPECT_EQ(renamed(R"({"a/": "x/", "a/b/": "y/"})", "a/b/c"), "y/c");  // the longer beginning
}

TEST(MetricNames, ExchangesNames) {
  const std::string json = R"({"loss": "epoch", "epoch": "loss"})";
  EXPECT_EQ(renamed(json, "loss"), "epoch");
  EXPECT_EQ(renamed(json, "epoch"), "loss");
}

TEST(MetricNames, KeepsNamesWithoutAMap) {
  for (const char* json : {"", "{}"}) {
    EXPECT_EQ(renamed(json, "loss"), "loss");
    EXPECT_TRUE(MetricNames::parse(json)->is_empty());
  }
}

TEST(MetricNames, RejectsNamesThatLosePoints) {
  const struct {
    std::string json;
    const char* message;
  } kCases[] = {
      {.json = R"(["loss"])", .message = "expected a map of names"},
      {.json = R"({"loss": 1})", .message = "'loss': expected a name"},
      {.json = R"({"loss": null})", .message = "'loss': expected a name"},
      {.json = R"({"": "x"})", .message = "a name must not be empty"},
      {.json = R"({"eval/": ""})", .message = "'eval/': the name '' must not be empty"},
      {.json = R"({"loss": "_step"})", .message = "must not begin with '_'"},
      {.json = R"({"loss": "a\nb"})", .message = "must be printable"},
      {.json = R"({"loss": ")" + std::string(251, 'x') + R"("})", .message = "must have at most 250 bytes"},
      {.json = R"({"eval/": "x/", "test/": "x/"})", .message = "two metrics would have the name 'x/'"},
      {.json = R"({"eval/loss": "loss"})", .message = "two metrics would have the name 'loss'; rename 'loss', too"},
  };
  for (const auto& invalid : kCases) {
    const Result<MetricNames> names = MetricNames::parse(invalid.json);
    ASSERT_FALSE(names) << invalid.json;
    EXPECT_EQ(names.error().code, ExitCode::kConfig);
    EXPECT_THAT(names.error().message, HasSubstr(invalid.message));
  }
}

}  // namespace
}  // namespace oarlock
