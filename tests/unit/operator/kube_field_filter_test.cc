#include "operator/kube/field_filter.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace oarlock::kube {
namespace {

using nlohmann::json;

json parse(const FieldFilter& filter, std::string_view text) {
  const Result<json> result = filter.parse(text);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return result ? *result : json();
}

constexpr std::string_view kPod = R"({
  "metadata": {"name": "p", "managedFields": [{"manager": "x", "fieldsV1": {"f:a": {"f:b": {}}}}], "labels": {"a.b/c": "1", "d": "2"}},
  "spec": {"containers": [{"name": "c", "env": [{"name": "A"}]}], "nodeName": "n"},
  "status": {"conditions": [{"type": "Ready", "status": "True", "message": "m"}, {"type": "X", "other": [1, {"y": 2}]}], "phase": null}
})";

TEST(FieldFilter, KeepsWhatIsNamedAndNothingElse) {
  const FieldFilter filter({"metadata.name", "spec.nodeName", "status.conditions.type", "status.phase", "not.there"});
  EXPECT_EQ(parse(filter, kPod), json::parse(R"({"metadata": {"name": "p"}, "spec": {"nodeName": "n"},
    "status": {"conditions": [{"type": "Ready"}, {"type": "X"}], "phase": null}})"));
}

TEST(FieldFilter, KeepsAllBelowAPath) {
  EXPECT_EQ(parse(FieldFilter({"spec", "status.conditions"}), kPod),
            json::parse(R"({"spec": {"containers": [{"name": "c", "env": [{"name": "A"}]}], "nodeName": "n"},
    "status": {"conditions": [{"type": "Ready", "status": "True", "message": "m"}, {"type": "X", "other": [1, {"y": 2}]}]}})"));
}

TEST(FieldFilter, AnEscapedDotIsPartOfTheKey) {
  EXPECT_EQ(parse(FieldFilter({R"(metadata.labels.a\.b/c)"}), kPod),
            json::parse(R"({"metadata": {"labels": {"a.b/c": "1"}}})"));
}

TEST(FieldFilter, NestedFiltersTheObjectOfAnEvent) {
  const FieldFilter event = FieldFilter({"metadata.name"}).nested("object", {"type", "object.code"});
  EXPECT_EQ(parse(event, R"({"type":"ADDED","object":{"metadata":{"name":"a","uid":"u"},"spec":{}},"x":1})"),
            json::parse(R"({"type":"ADDED","object":{"metadata":{"name":"a"}}})"));
  EXPECT_EQ(parse(event, R"({"object":{"code":410,"kind":"Status"},"type":"ERROR"})"),
            json::parse(R"({"type":"ERROR","object":{"code":410}})"));
}

TEST(FieldFilter, ValuesKeepTheirTypes) {
  const FieldFilter all({"a"});
  const std::string text =
      R"({"a":[1,-2,3.5,true,null,"\u00e4\n",{"b":[]},[],18446744073709551615,-9223372036854775808,1e300,0]})";
  EXPECT_EQ(parse(all, text), json::parse(text));
}

TEST(FieldFilter, WhatIsNoJsonFails) {
  const FieldFilter filter({"a"});
  for (const std::string_view text :
       {"", "{", R"({"a":1)", R"({"a":1} x)", R"({"a":tru})", R"({"a":nul})", R"({"a":01})", R"({"a":"\u12"})",
        R"({"b":[1})", R"({"b":{"c":1)", "{\"b\":\"\xff\"}"}) {
    const auto result = filter.parse(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, ExitCode::kDataErr);
    EXPECT_NE(result.error().message, "");
  }
}

TEST(FieldFilter, AScalarWhereAnObjectIsExpectedIsTakenAsItIs) {
  EXPECT_EQ(parse(FieldFilter({"metadata.name"}), R"({"metadata":"odd"})"), json::parse(R"({"metadata":"odd"})"));
}

}  // namespace
}  // namespace oarlock::kube
