#include "kube/client/field_filter.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <limits>
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

TEST(FieldFilter, KeepsOnlySelectedFields) {
  const FieldFilter filter({"metadata.name", "spec.nodeName", "status.conditions.type", "status.phase", "not.there"});
  EXPECT_EQ(parse(filter, kPod), json::parse(R"({"metadata": {"name": "p"}, "spec": {"nodeName": "n"},
    "status": {"conditions": [{"type": "Ready"}, {"type": "X"}], "phase": null}})"));
}

TEST(FieldFilter, KeepsEverythingBelowAPath) {
  EXPECT_EQ(parse(FieldFilter({"spec", "status.conditions"}), kPod),
            json::parse(R"({"spec": {"containers": [{"name": "c", "env": [{"name": "A"}]}], "nodeName": "n"},
    "status": {"conditions": [{"type": "Ready", "status": "True", "message": "m"}, {"type": "X", "other": [1, {"y": 2}]}]}})"));
}

TEST(FieldFilter, EscapedDotIsPartOfTheKey) {
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

TEST(FieldFilter, RejectsInvalidJson) {
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

// The API server stores 18446744073709551615 as the first of these; the others are out of the range of every decoder.
TEST(FieldFilter, ReadsEveryNumberThatJsonAllows) {
  struct Case {
    const char* text;
    double value;
  };
  const Case cases[] = {{"18446744073709552000", 18446744073709552000.0},
                        {"-9223372036854775809", -9223372036854775809.0},
                        {"100000000000000000000000000000000000000000", 1e41},
                        {"12345678901234567890.5", 12345678901234567890.5},  // more than 19 digits
                        {"0.1234567890123456789012345e2", 12.34567890123456789012345},
                        {"1e400", std::numeric_limits<double>::max()},
                        {"-1e400", -std::numeric_limits<double>::max()},
                        {"1E+400", std::numeric_limits<double>::max()},
                        {"1e-400", 0},
                        {"-1e-400", 0},
                        {"1e99999999999999999999", std::numeric_limits<double>::max()},
                        {"0.1e1", 1},
                        {"1e+21", 1e21},
                        {"5e-324", 5e-324},
                        {"1.7976931348623157e308", std::numeric_limits<double>::max()}};
  for (const Case& test : cases) {
    SCOPED_TRACE(test.text);
    const json got = parse(FieldFilter({"a", "c"}), fmt::format(R"({{"a":[{0} ,{0}],"b":{0},"c":1}})", test.text));
    EXPECT_EQ(got["c"], 1);
    ASSERT_EQ(got["a"].size(), 2U);
    EXPECT_EQ(got["a"][0].get<double>(), test.value);
    EXPECT_EQ(got["a"][1].get<double>(), test.value);
    EXPECT_NE(got.dump(), "");
  }
  EXPECT_EQ(parse(FieldFilter({"a"}), R"({"a":-0.0})")["a"].get<double>(), 0);
  const std::string digits(5000, '7');
  EXPECT_EQ(parse(FieldFilter({"a"}), R"({"a":)" + digits + "}")["a"].get<double>(),
            std::numeric_limits<double>::max());
  for (const char* wrong :
       {"+1", "1.", ".5", "1e", "1e+", "0x10", "NaN", "Infinity", "-", "--1", "00000000000000000000001",
        "18446744073709552000x", "1844674407370955200018446744073709552000.", "1 2"}) {
    EXPECT_FALSE(FieldFilter({"a"}).parse(fmt::format(R"({{"a":{}}})", wrong))) << wrong;
  }
}

// Go's decoder behaves the same.
TEST(FieldFilter, ReplacesUnpairedSurrogates) {
  struct Case {
    const char* text;
    const char* value;
  };
  const Case cases[] = {{R"(\ud800)", "\xEF\xBF\xBD"},
                        {R"(\udc00x)", "\xEF\xBF\xBDx"},
                        {R"(a\ud800\ud83d\ude00\n\"\u00e4\u0041)",
                         "a\xEF\xBF\xBD\xF0\x9F\x98\x80\n\"\xC3\xA4"
                         "A"},
                        {R"(\ud83d\ude00)", "\xF0\x9F\x98\x80"},
                        {R"(\ud800\\)", "\xEF\xBF\xBD\\"}};
  for (const Case& test : cases) {
    const std::string text = test.text;
    EXPECT_EQ(parse(FieldFilter({"a", "z"}), R"({"a":")" + text + R"(" ,"b":")" + text + R"(","z":1})"),
              json({{"a", test.value}, {"z", 1}}));
    const json keyed = parse(FieldFilter({"a"}), R"({"a":{")" + text + R"(":"v"},")" + text + R"(":2})");
    EXPECT_EQ(keyed["a"][test.value], "v");
  }
  EXPECT_FALSE(FieldFilter({"a"}).parse(R"({"a":"\ud800\u12"})"));
  EXPECT_FALSE(FieldFilter({"a"}).parse(R"({"a":"\ud800\x"})"));
}

TEST(FieldFilter, LastDuplicateKeyApplies) {
  EXPECT_EQ(parse(FieldFilter({"a", "b.c"}), R"({"a":1,"b":{"c":1,"c":2},"a":[3],"b":{"c":4}})"),
            json::parse(R"({"a":[3],"b":{"c":4}})"));
}

std::string nested(int depth) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += R"({"a":)";
  return text + "1" + std::string(static_cast<size_t>(depth), '}');
}

// The API server stores up to 10,000 levels.
TEST(FieldFilter, SkipsAnyDepthButKeepsALimitedDepth) {
  const std::string deep = nested(9900);
  EXPECT_EQ(parse(FieldFilter({"b"}), R"({"a":)" + deep + R"(,"b":1})"), json::parse(R"({"b":1})"));
  EXPECT_EQ(parse(FieldFilter({"a"}), R"({"a":)" + nested(200) + "}")["a"], json::parse(nested(200)));
  const auto too_deep = FieldFilter({"a"}).parse(R"({"a":)" + deep + "}");
  ASSERT_FALSE(too_deep);
  EXPECT_THAT(too_deep.error().message, ::testing::HasSubstr("256 levels"));
  const std::string arrays = std::string(9900, '[') + std::string(9900, ']');
  EXPECT_FALSE(FieldFilter({"a"}).parse(R"({"a":)" + arrays + "}"));
  EXPECT_EQ(parse(FieldFilter({"b"}), R"({"a":)" + arrays + R"(,"b":1})"), json::parse(R"({"b":1})"));
}

std::string text_of(const json& kept) { return {kept.get_binary().begin(), kept.get_binary().end()}; }

TEST(FieldFilter, KeepsObjectsAsText) {
  const FieldFilter filter = FieldFilter({"spec", "c"}).with_text({"spec.trainer", "spec.template"});
  const std::string trainer =
      R"({"seed":18446744073709552000,"x":1e400, "s":"\ud800","d":1.0,"d":1.10,"deep":)" + nested(9900) + "}";
  const json kept = parse(filter, R"({"spec":{"nodes":2,"other":{"trainer":{"a":1}},"template": {} ,"trainer":)" +
                                      trainer + R"( ,"z":3} ,"c":1})");
  EXPECT_EQ(text_of(kept["spec"]["trainer"]), trainer);
  EXPECT_EQ(text_of(kept["spec"]["template"]), "{}");
  EXPECT_EQ(kept["spec"]["other"], json::parse(R"({"trainer":{"a":1}})"));
  EXPECT_EQ(kept["spec"]["nodes"], 2);
  EXPECT_EQ(kept["spec"]["z"], 3);
  EXPECT_EQ(kept["c"], 1);
  // A value of another type is not kept as text.
  EXPECT_EQ(parse(filter, R"({"spec":{"trainer":"x","template":[1]}})"),
            json::parse(R"({"spec":{"trainer":"x","template":[1]}})"));
  const FieldFilter event = filter.nested("object", {"type"});
  EXPECT_EQ(text_of(parse(event, R"({"object":{"spec":{"trainer":{"a": 1}}}})")["object"]["spec"]["trainer"]),
            R"({"a": 1})");
}

TEST(FieldFilter, ReadsAnObjectOfThreeMegabytes) {
  const std::string filler(3u << 20, 'x');
  FieldFilter::Buffers buffers;
  for (const std::string& text : std::vector<std::string>{R"({"a":")" + filler + R"(","b":1})", R"({"a":"y","b":1})",
                                                          R"({"c":")" + filler + R"(","b":1})"}) {
    const auto got = FieldFilter({"a", "b"}).parse(text, buffers);
    ASSERT_TRUE(got);
    EXPECT_EQ((*got)["b"], 1);
  }
}

TEST(FieldFilter, RejectsTooManyValues) {
  const auto text_with = [](size_t values) {
    std::string text = R"({"a":[0)";
    for (size_t i = 1; i < values; ++i) text += ",0";
    return text + R"(],"b":1})";
  };
  const std::string text = text_with(FieldFilter::kMaxValues);
  EXPECT_TRUE(FieldFilter({"a"}).parse(text_with(FieldFilter::kMaxValues - 2)));
  const auto rejected = FieldFilter({"a"}).parse(text);
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().message, "more than 50000 values");
  EXPECT_TRUE(FieldFilter({"b"}).parse(text)) << "skipped values take no memory";
}

TEST(FieldFilter, KeepsScalarInPlaceOfAnObject) {
  EXPECT_EQ(parse(FieldFilter({"metadata.name"}), R"({"metadata":"odd"})"), json::parse(R"({"metadata":"odd"})"));
}

}  // namespace
}  // namespace oarlock::kube
