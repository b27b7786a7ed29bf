// The names and values that MLflow accepts, and the classification of its responses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/text.h"
#include "trainer/tracking/mlflow_client.h"
#include "trainer/tracking/mlflow_items.h"

namespace oarlock {
namespace {

using testing::MatchesRegex;

TEST(MlflowNames, KeepsValidNames) {
  for (const std::string name : {"loss", "eval/top-1", "time/data_wait", "optimizer.lr", "a b:c", ".hidden",
                                 "eval/准确率", "eval/точность", "größe", "손실"}) {
    EXPECT_EQ(mlflow_key(name), name);
  }
  EXPECT_EQ(mlflow_key(std::string(250, 'x')), std::string(250, 'x'));
}

TEST(MlflowNames, MakesNamesValid) {
  struct Row {
    const char* name;
    const char* expected;  // a regular expression for the key
  };
  const Row rows[] = {
      {.name = "a@1", .expected = "a_1-[0-9a-f]+"},
      {.name = "a%1", .expected = "a_1-[0-9a-f]+"},
      {.name = "eval//x", .expected = "eval/x-[0-9a-f]+"},
      {.name = "/eval/x", .expected = "eval/x-[0-9a-f]+"},
      {.name = "eval/x/", .expected = "eval/x-[0-9a-f]+"},
      {.name = "eval/./x", .expected = "eval/_/x-[0-9a-f]+"},
      {.name = "eval/../x", .expected = "eval/__/x-[0-9a-f]+"},
      {.name = "..x", .expected = "__x-[0-9a-f]+"},
      {.name = "", .expected = "_-[0-9a-f]+"},
      {.name = "//", .expected = "_-[0-9a-f]+"},
      {.name = "a\nb", .expected = "a_b-[0-9a-f]+"},
      {.name = "caf\xe9", .expected = "caf_-[0-9a-f]+"},    // Latin-1
      {.name = "eval/★", .expected = "eval/_-[0-9a-f]+"},   // no letter
      {.name = "eval/ก็", .expected = "eval/__-[0-9a-f]+"},  // with a combining mark
  };
  std::set<std::string> keys;
  for (const Row& row : rows) {
    EXPECT_THAT(mlflow_key(row.name), MatchesRegex(row.expected)) << row.name;
    EXPECT_EQ(mlflow_key(row.name), mlflow_key(row.name));
    EXPECT_TRUE(keys.insert(mlflow_key(row.name)).second) << row.name << " has the key of another name";
  }
}

TEST(MlflowNames, HaveTheChecksumOfTheGuide) { EXPECT_EQ(mlflow_key("a@1"), "a_1-17f3373a"); }

TEST(MlflowNames, CutsLongNamesBetweenCharacters) {
  std::set<std::string> keys;
  for (const std::string end : {"1", "2"}) {
    for (const std::string shift : {"", "x", "xy"}) {
      std::string name = shift;
      for (int i = 0; i < 100; ++i) name += "率";
      const std::string key = mlflow_key(name + end);
      EXPECT_LE(key.size(), 250U);
      EXPECT_GE(key.size(), 247U);
      EXPECT_TRUE(is_printable(key));
      EXPECT_TRUE(keys.insert(key).second);
    }
  }
  EXPECT_NE(mlflow_key(std::string(249, 'x') + "/y").back(), '/');
}

TEST(MlflowNames, MakesPathsOfArtifacts) {
  EXPECT_EQ(mlflow_artifact_path("images", "eval/predictions", 100, "png"), "images/eval/predictions/00000100.png");
  EXPECT_THAT(mlflow_artifact_path("text", "../../a", 1, "md"), MatchesRegex("text/__/__/a-[0-9a-f]+/00000001.md"));
  EXPECT_NE(mlflow_artifact_path("text", "a.b", 1, "md"), mlflow_artifact_path("text", "a_b", 1, "md"));
  EXPECT_NE(mlflow_artifact_path("text", "a.b", 1, "md"), mlflow_artifact_path("text", "a:b", 1, "md"));
}

TEST(MlflowNames, LimitsValues) {
  EXPECT_EQ(mlflow_text("a\nb", 10), "a\\nb");
  EXPECT_EQ(mlflow_text("0123456789", 10), "0123456789");
  EXPECT_EQ(mlflow_text("01234567890", 10), "0123456...");
  EXPECT_EQ(mlflow_text("012345率率率", 10), "012345...");
  EXPECT_EQ(mlflow_text(std::string(6000, '\n'), 6000).size(), 6000U);
}

TEST(MlflowError, IsClassified) {
  struct Row {
    int status;
    const char* code;  // empty: from a proxy
    MlflowErrorKind kind;
  };
  const Row rows[] = {
      {.status = 400, .code = "INVALID_PARAMETER_VALUE", .kind = MlflowErrorKind::kRejected},
      {.status = 400, .code = "BAD_REQUEST", .kind = MlflowErrorKind::kRejected},
      {.status = 400, .code = "RESOURCE_ALREADY_EXISTS", .kind = MlflowErrorKind::kAlreadyExists},
      {.status = 404, .code = "RESOURCE_DOES_NOT_EXIST", .kind = MlflowErrorKind::kMissing},
      {.status = 413, .code = "", .kind = MlflowErrorKind::kTooLarge},
      {.status = 401, .code = "", .kind = MlflowErrorKind::kDenied},
      {.status = 403, .code = "PERMISSION_DENIED", .kind = MlflowErrorKind::kDenied},
      {.status = 302, .code = "", .kind = MlflowErrorKind::kUnavailable},
      {.status = 400, .code = "", .kind = MlflowErrorKind::kUnavailable},
      {.status = 404, .code = "", .kind = MlflowErrorKind::kUnavailable},
      {.status = 404, .code = "ENDPOINT_NOT_FOUND", .kind = MlflowErrorKind::kUnavailable},
      {.status = 429, .code = "REQUEST_LIMIT_EXCEEDED", .kind = MlflowErrorKind::kUnavailable},
      {.status = 500, .code = "INTERNAL_ERROR", .kind = MlflowErrorKind::kUnavailable},
      {.status = 500, .code = "INVALID_STATE", .kind = MlflowErrorKind::kUnavailable},
      {.status = 503, .code = "RESOURCE_DOES_NOT_EXIST", .kind = MlflowErrorKind::kUnavailable},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(classify_mlflow_response(row.status, row.code), row.kind) << row.status << " " << row.code;
    // The tracker drops an event for this code only.
    EXPECT_NE(repeatable_error({.kind = row.kind, .message = "m"}).code, ExitCode::kDataErr);
  }
}

}  // namespace
}  // namespace oarlock
