// The types of YAML scalars, compared with those that kubectl gives them. The expected values are the output of
// sigs.k8s.io/yaml v1.6.0 (YAMLToJSONStrict), the library that kubectl converts YAML with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "yaml/reader.h"

namespace oarlock::yaml {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string type_error_of(const std::string& text) {
  const auto documents = parse_all(text, "f.yaml");
  return documents ? "" : documents.error().message;
}

Node value_of(const std::string& text) {
  const auto documents = parse_all("v: " + text + "\n", "f.yaml");
  if (!documents) ADD_FAILURE() << text << ": " << documents.error().message;
  return documents ? *documents->front().find("v") : empty_map();
}

TEST(YamlTypes, ScalarsHaveTypesOfKubectl) {
  struct Row {
    const char* text;
    json value;
  };
  const Row kRows[] = {
      // Booleans and null
      {.text = "yes", .value = true},
      {.text = "Yes", .value = true},
      {.text = "YES", .value = true},
      {.text = "yEs", .value = "yEs"},
      {.text = "y", .value = true},
      {.text = "Y", .value = true},
      {.text = "on", .value = true},
      {.text = "ON", .value = true},
      {.text = "true", .value = true},
      {.text = "True", .value = true},
      {.text = "tRUE", .value = "tRUE"},
      {.text = "no", .value = false},
      {.text = "N", .value = false},
      {.text = "off", .value = false},
      {.text = "Off", .value = false},
      {.text = "false", .value = false},
      {.text = "~", .value = nullptr},
      {.text = "", .value = nullptr},
      {.text = "null", .value = nullptr},
      {.text = "Null", .value = nullptr},
      {.text = "NULL", .value = nullptr},
      {.text = "nULL", .value = "nULL"},
      {.text = "Nil", .value = "Nil"},
      // Integers
      {.text = "0", .value = 0},
      {.text = "-0", .value = 0},
      {.text = "+1", .value = 1},
      {.text = "-1", .value = -1},
      {.text = "00", .value = 0},
      {.text = "007", .value = 7},
      {.text = "017", .value = 15},
      {.text = "0755", .value = 493},
      {.text = "+017", .value = 15},
      {.text = "0o17", .value = 15},
      {.text = "0O17", .value = 15},
      {.text = "-0o17", .value = -15},
      {.text = "019", .value = 19},
      {.text = "08", .value = 8},
      {.text = "0x1F", .value = 31},
      {.text = "0X1f", .value = 31},
      {.text = "-0x1F", .value = -31},
      {.text = "0b101", .value = 5},
      {.text = "-0b11", .value = -3},
      {.text = "0b", .value = "0b"},
      {.text = "0x", .value = "0x"},
      {.text = "0xg", .value = "0xg"},
      {.text = "0b2", .value = "0b2"},
      {.text = "0o8", .value = "0o8"},
      {.text = "1_000", .value = 1000},
      {.text = "1__0", .value = 10},
      {.text = "1_", .value = 1},
      {.text = "+_1", .value = 1},
      {.text = "_1", .value = "_1"},
      {.text = "0x_1F", .value = 31},
      {.text = "0_7", .value = 7},
      {.text = "0_", .value = 0},
      {.text = "9223372036854775807", .value = INT64_MAX},
      {.text = "-9223372036854775808", .value = INT64_MIN},
      {.text = "9223372036854775808", .value = 9223372036854775808.0},
      {.text = "-9223372036854775809", .value = -9223372036854775808.0},
      {.text = "18446744073709551616", .value = 18446744073709551616.0},
      {.text = "0xFFFFFFFFFFFFFFFF", .value = 18446744073709551615.0},
      {.text = "0x10000000000000000", .value = "0x10000000000000000"},
      // Floating-point numbers
      {.text = "0.5", .value = 0.5},
      {.text = "00.5", .value = 0.5},
      {.text = ".5", .value = 0.5},
      {.text = "+.5", .value = 0.5},
      {.text = "-.5", .value = -0.5},
      {.text = ".5e1", .value = 5},
      {.text = "1.", .value = 1},
      {.text = "1.0", .value = 1},
      {.text = "1.10", .value = 1.1},
      {.text = "1e3", .value = 1000},
      {.text = "1E+3", .value = 1000},
      {.text = "1e-4", .value = 1e-4},
      {.text = "1e22", .value = 1e22},
      {.text = "1e400", .value = "1e400"},
      {.text = "1e-400", .value = 0},
      {.text = "1e", .value = "1e"},
      {.text = ".e1", .value = ".e1"},
      {.text = "1_0.5", .value = 10.5},
      {.text = ".1_0", .value = 0.1},
      {.text = "._5", .value = "._5"},
      {.text = ".5_", .value = ".5_"},
      {.text = ".", .value = "."},
      {.text = "0x1p-2", .value = "0x1p-2"},
      {.text = "inf", .value = "inf"},
      {.text = "nan", .value = "nan"},
      {.text = "-infinity", .value = "-infinity"},
      {.text = ".nAN", .value = ".nAN"},
      // Strings that other readers of YAML 1.1 take for numbers
      {.text = "1:30", .value = "1:30"},
      {.text = "12:30:45.5", .value = "12:30:45.5"},
      {.text = "2026-11-24", .value = "2026-11-24"},
      {.text = "2026-11-24T10:00:00Z", .value = "2026-11-24T10:00:00Z"},
      {.text = "1,000", .value = "1,000"},
      {.text = "100m", .value = "100m"},
      {.text = "10Gi", .value = "10Gi"},
      {.text = "+", .value = "+"},
      {.text = "--1", .value = "--1"},
      {.text = "=", .value = "="},
      {.text = "<<", .value = "<<"},
      // Quotes and tags
      {.text = "\"yes\"", .value = "yes"},
      {.text = "'017'", .value = "017"},
      {.text = "'~'", .value = "~"},
      {.text = "|-\n  1.0", .value = "1.0"},
      {.text = "! 017", .value = "017"},
      {.text = "!foo 017", .value = "017"},
      {.text = "!!str 017", .value = "017"},
      {.text = "!!str ~", .value = "~"},
      {.text = "!!str", .value = ""},
      {.text = "!!int 017", .value = 15},
      {.text = "!!int \"017\"", .value = 15},
      {.text = "!!float 1", .value = 1},
      {.text = "!!float \"1e-4\"", .value = 1e-4},
      {.text = "!!bool \"yes\"", .value = true},
      {.text = "!!null \"\"", .value = nullptr},
  };
  for (const Row& row : kRows) {
    const json value = value_of(row.text).to_json();
    EXPECT_EQ(value, row.value) << row.text;
    EXPECT_EQ(value.type(), row.value.is_number_unsigned() ? json::value_t::number_integer : row.value.type())
        << row.text << ": " << value.type_name();
  }
}

// kubectl reports an error for these.
TEST(YamlTypes, RejectsValuesOfAnotherTypeThanTheirTag) {
  struct Row {
    const char* text;
    const char* message;
  };
  constexpr Row kRows[] = {
      {.text = "!!int x", .message = "f.yaml:1:4: 'x' has the tag !!int, and is not of this type"},
      {.text = "!!int 1.5", .message = "'1.5' has the tag !!int"},
      {.text = "!!float x", .message = "'x' has the tag !!float"},
      {.text = "!!float", .message = "'' has the tag !!float"},
      {.text = "!!bool 1", .message = "'1' has the tag !!bool"},
      {.text = "!!null x", .message = "'x' has the tag !!null"},
      {.text = "!!binary aGk=", .message = "the tag !!binary is not supported"},
  };
  for (const Row& row : kRows) EXPECT_THAT(type_error_of(std::string("v: ") + row.text + "\n"), HasSubstr(row.message));
}

// JSON has no such numbers, but a configuration of the trainer can use them.
TEST(YamlTypes, ReadsInfiniteNumbers) {
  for (const char* text : {".inf", "+.Inf", "-.INF", ".nan", ".NaN"}) {
    const Node node = value_of(text);
    EXPECT_TRUE(node.value().is_number_float()) << text;
    EXPECT_FALSE(std::isfinite(node.value().get<double>())) << text;
    EXPECT_EQ(node.to_json(), text);
  }
}

TEST(YamlTypes, ReaderReportsTypesOfKubectl) {
  const auto documents = parse_all(
      "a: on\nb: 1.0\nc: 017\nd: [x, no]\ne: yes\nf: 0x10\ng: 1e3\nh: \"017\"\ni: maybe\nj: off\nk: 1_0\n", "f");
  ASSERT_TRUE(documents);
  Problems problems("f");
  MapReader reader(documents->front(), "", problems);
  std::string text;
  std::vector<std::string> texts;
  bool flag = false;
  int number = 0;
  double real = 0;
  constexpr std::pair<std::string_view, int> kChoices[] = {{"off", 0}, {"full", 1}};
  EXPECT_FALSE(reader.read("a", text));
  EXPECT_FALSE(reader.read("b", text));
  EXPECT_FALSE(reader.read("c", text));
  EXPECT_FALSE(reader.read("d", texts));
  EXPECT_TRUE(reader.read("e", flag));
  EXPECT_TRUE(flag);
  EXPECT_TRUE(reader.read("f", number));
  EXPECT_EQ(number, 16);
  EXPECT_TRUE(reader.read("g", number));
  EXPECT_EQ(number, 1000);
  EXPECT_FALSE(reader.read("h", number));
  EXPECT_FALSE(reader.read("i", flag));
  EXPECT_FALSE(reader.read<int>("j", number, kChoices));
  EXPECT_TRUE(reader.read("k", real));
  EXPECT_EQ(real, 10);
  reader.finish();
  EXPECT_EQ(problems.to_error().message,
            "f:1:4: a: expected a string, got 'on', which is the boolean true in YAML; put it in quotes\n"
            "f:2:4: b: expected a string, got the number 1.0; put it in quotes\n"
            "f:3:4: c: expected a string, got '017', which is the number 15 in YAML; put it in quotes\n"
            "f:4:8: d[1]: expected strings, got 'no', which is the boolean false in YAML; put it in quotes\n"
            "f:8:4: h: expected an integer, got the string \"017\"\n"
            "f:9:4: i: expected true or false, got 'maybe'\n"
            "f:10:4: j: expected one of off, full, got 'off', which is the boolean false in YAML; put it in quotes");
}

TEST(YamlTypes, MergeKeysAddEntries) {
  struct Row {
    const char* text;
    const char* json;
  };
  constexpr Row kRows[] = {
      {.text = "a: &x {b: 1}\nc: {<<: *x, d: 2}\n", .json = R"({"a":{"b":1},"c":{"b":1,"d":2}})"},
      {.text = "a: &x {b: 1}\nc: {<<: *x, b: 2}\n", .json = R"({"a":{"b":1},"c":{"b":2}})"},
      {.text = "a: &x {b: 1}\nc: &y {b: 2, e: 3}\nd: {<<: [*x, *y]}\n",
       .json = R"({"a":{"b":1},"c":{"b":2,"e":3},"d":{"b":1,"e":3}})"},
      {.text = "c: {\"<<\": 1}\n", .json = R"({"c":{"<<":1}})"},
  };
  for (const Row& row : kRows) {
    const auto documents = parse_all(row.text, "f.yaml");
    ASSERT_TRUE(documents) << documents.error().message;
    EXPECT_EQ(documents->front().to_json(), json::parse(row.json)) << row.text;
  }
  EXPECT_EQ(type_error_of("<<: 1\n"),
            "f.yaml:1:1: the value of the merge key << must be a map, such as *name, or a list of maps");
  EXPECT_EQ(type_error_of("a: &x {b: 1}\nc: {b: 2, <<: *x}\n"),
            "f.yaml:2:11: the key 'b' is above the merge key <<, whose map has it too; write << first");
}

}  // namespace
}  // namespace oarlock::yaml
