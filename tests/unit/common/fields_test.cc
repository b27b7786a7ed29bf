// The visitors of described structs: one description is read, written, validated and documented.
#include "fields/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fields/json_reader.h"
#include "fields/reference.h"
#include "fields/schema.h"
#include "fields/validator.h"
#include "fields/writer.h"
#include "fields/yaml_reader.h"
#include "yaml/writer.h"

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

enum class Kind { kRound, kSquare };

struct Item {
  std::string name = "n";
  double weight = 1;
};

struct Match {
  std::vector<int64_t> codes{};
  std::vector<std::string> words{};
  std::string unknown{};
};

// A struct with each kind of field that configurations use.
struct Everything {
  bool flag = true;
  std::string text = "a: b";
  std::vector<std::string> words = {"x", "1"};
  int small = 3;
  int64_t large = int64_t{1} << 40;
  double number = 1e-8;
  std::optional<int64_t> maybe_integer;
  std::optional<double> maybe_number = 0.1;
  std::vector<int64_t> integers = {1, 2};
  std::vector<double> numbers = {};
  Kind kind = Kind::kSquare;
  double side = 2;
  double radius = 3;
  std::vector<Item> items = {{}, {"m", 0.3}};
};

void describe(Everything& value, Fields& fields) {
  fields.field("flag", value.flag, "a flag");
  fields.field("text", value.text, "a text | with a bar");
  fields.field("words", value.words, "words");
  fields.field("small", value.small, from_to(0, 9), "small");
  fields.field("large", value.large, at_least(0), "large");
  fields.section(
      "inner",
      [&](Fields& inner) {
        inner.field("number", value.number, above(0), "a number");
        inner.field("maybe_integer", value.maybe_integer, any_number(), "maybe");
        inner.field("maybe_number", value.maybe_number, from_below(0, 1), "maybe");
      },
      "nested fields");
  fields.field("integers", value.integers, at_least(0), "integers");
  fields.field("numbers", value.numbers, any_number(), "numbers");
  fields.choice<Kind>("kind", value.kind, {{"round", Kind::kRound}, {"square", Kind::kSquare}}, "the kind");
  fields.field("side", value.side, above(0), "of a square");
  fields.field("radius", value.radius, above(0), "of a circle");
  fields.only_if("side", value.kind == Kind::kSquare, "belongs to a square");
  fields.only_if("radius", value.kind == Kind::kRound, "belongs to a circle");
  fields.list<Item>(
      "items", value.items,
      [](Item& item, Fields& inner) {
        inner.field("name", item.name, "its name");
        inner.field("weight", item.weight, at_least(0), "its weight");
      },
      "items");
}

struct Read {
  std::string problems;
  std::string printed;
};

Read read(const std::string& text, Everything& value) {
  const auto documents = yaml::parse_all(text, "f.yaml");
  const yaml::Node node = documents->empty() ? yaml::empty_map() : documents->front();
  yaml::Problems problems("f.yaml");
  YamlFieldsReader reader(node, "", problems);
  nlohmann::ordered_json printed;
  FieldsWriter printer(printed, EmptyFields::kWrite, reader);
  describe(value, printer);
  reader.finish();
  return {problems.to_error().message, yaml::to_yaml(printed)};
}

constexpr char kDefaults[] = R"(flag: true
text: "a: b"
words:
- x
- "1"
small: 3
large: 1099511627776
inner:
  number: 1e-08
  maybe_number: 0.1
integers:
- 1
- 2
numbers: []
kind: square
side: 2.0
items:
- name: "n"
  weight: 1.0
- name: m
  weight: 0.3
)";

TEST(FieldsWriter, PrintedDefaultsReadBackUnchanged) {
  Everything value;
  const Read defaults = read("", value);
  EXPECT_EQ(defaults.problems, "");
  EXPECT_EQ(defaults.printed, kDefaults);
  Everything again;
  EXPECT_EQ(read(defaults.printed, again).printed, defaults.printed);
}

TEST(FieldsWriter, PrintsValuesRead) {
  const std::string text =
      "{flag: false, text: '', words: [], small: 9, inner: {number: 12.5, maybe_integer: -4, maybe_number: 0}, "
      "integers: [], numbers: [1.5, 2], kind: round, radius: 0.25, items: [{weight: 7}]}";
  Everything value;
  const Read first = read(text, value);
  EXPECT_EQ(first.problems, "");
  EXPECT_THAT(first.printed,
              AllOf(HasSubstr("number: 12.5\n  maybe_integer: -4\n  maybe_number: 0.0\n"),
                    HasSubstr("radius: 0.25\nitems:\n- name: \"n\"\n  weight: 7.0\n"), Not(HasSubstr("side"))));
  Everything again;
  EXPECT_EQ(read(first.printed, again).printed, first.printed);
}

TEST(YamlFieldsReader, ReportsPlaceOfConditionalKeysAndListItems) {
  Everything value;
  EXPECT_EQ(read("kind: round\nside: 1\nsmall: 10\nitems:\n- {weigth: 2}\n- {weight: -1}\n", value).problems,
            "f.yaml:3:8: small: 10 is not in [0, 9]\n"
            "f.yaml:2:7: side: belongs to a square\n"
            "f.yaml:5:4: items[0].weigth: unknown key; did you mean 'weight'?\n"
            "f.yaml:6:12: items[1].weight: -1 is below 0");
}

// A path with a NUL character would be truncated there.
TEST(YamlFieldsReader, RejectsNulCharacters) {
  Everything value;
  EXPECT_EQ(read("text: \"/data\\0/other\"\nwords: [x, \"y\\0\"]\n", value).problems,
            "f.yaml:1:7: text: '/data\\x00/other' contains a NUL character\n"
            "f.yaml:2:8: words: element 1: 'y\\x00' contains a NUL character");
}

TEST(FieldsReference, WritesTableOfEachSection) {
  Everything value;
  FieldsReference reference("");
  describe(value, reference);
  const std::string page = reference.markdown(3);
  EXPECT_THAT(page, HasSubstr("| `text` | string | `a: b` | a text \\| with a bar |\n"));
  EXPECT_THAT(page, HasSubstr("| `small` | integer, in [0, 9] | `3` | small |\n"));
  EXPECT_THAT(page, HasSubstr("| `kind` | `round`, `square` | `square` | the kind |\n"));
  EXPECT_THAT(page, HasSubstr("| `radius` | number, above 0 | `3` | of a circle |\n"));
  EXPECT_THAT(page, HasSubstr("### `inner`\n\nnested fields.\n"));
  EXPECT_THAT(page, HasSubstr("| `maybe_integer` | integer | – | maybe |\n"));
  EXPECT_THAT(page, HasSubstr("### `items[]`\n\nitems.\n"));
  EXPECT_THAT(page, HasSubstr("| `weight` | number, at least 0 | `1` | its weight |\n"));
  EXPECT_EQ(value.items.size(), 2U);
}

// A struct with the kinds of fields that only API objects use.
struct Resource {
  int replicas = 1;
  std::optional<int> port;
  std::string controller;
  SystemTime start{};
  std::optional<SystemTime> end;
  std::string raw;
  std::optional<Item> item;
  std::vector<Match> matches;
  Kind kind = Kind::kRound;
};

void describe_item(Item& item, Fields& fields) {
  fields.field("name", item.name, {.max_length = 4, .pattern = "^[a-z]+$", .noun = "one lower-case word"}, "Its name.");
  fields.field("weight", item.weight, at_least(0), "Its weight.");
  fields.require("name");
}

void describe_match(Match& match, Fields& fields) {
  fields.field("codes", match.codes, {.low = 1, .high = 255, .min_items = 1, .max_items = 3, .list_type = "set"},
               "Codes.");
  fields.field("words", match.words, {.max_length = 8}, "Words.");
  fields.unknown_members(match.unknown);
}

void describe(Resource& value, Fields& fields) {
  fields.field("replicas", value.replicas, from_to(1, 9), "Replicas.");
  fields.field("port", value.port, from_to(1, 65535), "Port.");
  fields.field("controller", value.controller, {.max_length = 10}, "Controller.");
  fields.field("start", value.start, "Start.");
  fields.field("end", value.end, "End.");
  fields.raw_object("raw", value.raw, "Anything.");
  fields.section("item", value.item, describe_item, "Perhaps an item.");
  fields.list("matches", value.matches, describe_match, {.max_items = 2, .drops_unknown = true}, "Matches.");
  fields.section(
      "group",
      [&](Fields& group) {
        group.choice("kind", value.kind, {{"Round", Kind::kRound}, {"Square", Kind::kSquare}}, "The kind.");
      },
      "A group.");
}

using nlohmann::json;

json written(Resource value, EmptyFields empty) {
  json out;
  FieldsWriter writer(out, empty);
  describe(value, writer);
  return out;
}

struct Lenient {
  Resource value;
  ReadFindings findings;
};

Lenient read_json(const char* text) {
  const json document = json::parse(text);
  Lenient out;
  JsonFieldsReader reader(document, {.key = "r"}, JsonFieldsReader::UnknownFields::kReport, out.findings);
  describe(out.value, reader);
  reader.finish();
  return out;
}

constexpr char kResource[] = R"({"replicas": 2, "port": 80, "controller": "c", "start": "2026-01-01T00:00:00Z",
  "end": "2026-01-02T00:00:00Z", "raw": {"a": [1]}, "item": {"name": "b", "weight": 2.5},
  "matches": [{"codes": [7], "words": ["w"]}], "group": {"kind": "Square"}})";

TEST(JsonFieldsReader, ReadsWhatTheWriterWrites) {
  const Lenient read = read_json(kResource);
  EXPECT_THAT(read.findings.problems, IsEmpty());
  EXPECT_THAT(read.findings.unknown, IsEmpty());
  EXPECT_EQ(written(read.value, EmptyFields::kOmit), json::parse(kResource));
  EXPECT_EQ(written(read.value, EmptyFields::kNull), json::parse(kResource));
}

TEST(JsonFieldsReader, ReportsProblemsAndReadsTheRest) {
  const Lenient read = read_json(R"({"replicas": "2", "port": 1.5, "end": "noon", "raw": [], "item": 3, "matches": 4,
    "controller": null, "group": {"kind": "Oval", "size": 1}, "start": "2026-01-01T00:00:00Z"})");
  EXPECT_EQ(read.findings.problems,
            (std::vector<std::string>{
                R"(r.replicas: expected an integer, got "2")", "r.port: expected an integer, got 1.5",
                R"(r.end: expected a time as 2026-11-21T10:11:12Z, got "noon")", "r.raw: expected an object, got []",
                "r.item: expected an object, got 3", "r.matches: expected a list, got 4"}));
  EXPECT_EQ(read.findings.unknown,
            (std::vector<std::string>{R"(r.group.kind: unknown value "Oval")", "r.group.size: unknown field"}));
  EXPECT_EQ(to_rfc3339(read.value.start), "2026-01-01T00:00:00Z");
  EXPECT_EQ(read.value.kind, Kind::kRound);
}

TEST(JsonFieldsReader, DropsAndPreservesUnknownMembersOfItems) {
  const Lenient read = read_json(R"({"matches": [{"codes": [1], "later": 2}, {"codes": [3]}]})");
  EXPECT_EQ(read.findings.unknown, (std::vector<std::string>{"r.matches[0].later: unknown field"}));
  ASSERT_EQ(read.value.matches.size(), 1U);
  EXPECT_EQ(read.value.matches[0].codes, std::vector<int64_t>{3});
  Match kept;
  ReadFindings findings;
  const json document = {{"codes", {1}}, {"later", {{"b", 1}}}};
  JsonFieldsReader reader(document, {}, JsonFieldsReader::UnknownFields::kSkip, findings);
  describe_match(kept, reader);
  EXPECT_EQ(json::parse(kept.unknown), json::parse(R"({"later": {"b": 1}})"));
  json out;
  FieldsWriter writer(out, EmptyFields::kOmit);
  describe_match(kept, writer);
  EXPECT_EQ(out, document);
}

TEST(FieldsWriter, OmitsOrClearsEmptyFields) {
  EXPECT_EQ(written({}, EmptyFields::kOmit),
            json::parse(R"({"replicas": 1, "start": "1970-01-01T00:00:00Z", "group": {"kind": "Round"}})"));
  EXPECT_EQ(written({}, EmptyFields::kNull), json::parse(R"({"replicas": 1, "start": "1970-01-01T00:00:00Z",
    "group": {"kind": "Round"}, "port": null, "controller": null, "end": null, "item": null, "matches": []})"));
}

TEST(YamlFieldsReader, ReadsOptionalSectionsTimesAndRawMaps) {
  const auto read_yaml = [](const std::string& text, Resource& value) {
    yaml::Problems problems("f.yaml");
    YamlFieldsReader reader(yaml::parse_all(text, "f.yaml")->front(), "", problems);
    describe(value, reader);
    reader.finish();
    return problems.to_error().message;
  };
  Resource value;
  EXPECT_EQ(read_yaml("item: {name: a}\nstart: 2026-01-01T00:00:00Z\nraw: {x: '1'}\n", value), "");
  ASSERT_TRUE(value.item);
  EXPECT_EQ(value.item->name, "a");
  EXPECT_EQ(to_rfc3339(value.start), "2026-01-01T00:00:00Z");
  EXPECT_EQ(value.raw, R"({"x":"1"})");
  Resource absent;
  EXPECT_EQ(read_yaml("{item: null}", absent), "");
  EXPECT_FALSE(absent.item);
  EXPECT_EQ(
      read_yaml("end: noon\nraw: 3\nitem: {}\ncontroller: abcdefghijk\nmatches: [{words: [abcdefghi]}]\n", absent),
      "f.yaml:4:13: controller: 'abcdefghijk' has 11 characters; the maximum is 10\n"
      "f.yaml:1:6: end: expected a time as 2026-11-21T10:11:12Z\n"
      "f.yaml:2:6: raw: expected a map, got '3'\n"
      "f.yaml:3:7: item.name: is required\n"
      "f.yaml:5:19: matches[0].words: element 0: 'abcdefghi' has 9 characters; the maximum is 8");
}

TEST(FieldsValidator, ReportsValuesOutsideTheirLimits) {
  Resource value;
  value.replicas = 10;
  value.port = 0;
  value.item = Item{.name = "B", .weight = -1};
  value.matches = {{.codes = {}}, {.codes = {1, 1}}, {.codes = {256}, .words = {"abcdefghi"}}, {.codes = {1, 2, 3, 4}}};
  std::vector<FieldProblem> problems;
  FieldsValidator validator({.key = "r"}, problems);
  describe(value, validator);
  EXPECT_EQ(problems,
            (std::vector<FieldProblem>{{"r.replicas", "10 is too large; the maximum is 9"},
                                       {"r.port", "0 is too small; the minimum is 1"},
                                       {"r.item.name", "'B' is not one lower-case word"},
                                       {"r.item.weight", "-1 is below 0"},
                                       {"r.matches", "has 4 items; the maximum is 2"},
                                       {"r.matches[0].codes", "needs at least one item"},
                                       {"r.matches[1].codes", "1 occurs twice"},
                                       {"r.matches[2].codes", "256 is too large; the maximum is 255"},
                                       {"r.matches[2].words", "'abcdefghi' has 9 characters; the maximum is 8"},
                                       {"r.matches[3].codes", "has 4 items; the maximum is 3"}}));
  problems.clear();
  Resource valid;
  describe(valid, validator);
  EXPECT_THAT(problems, IsEmpty());
}

TEST(FieldsSchema, DescribesEveryType) {
  Resource value;
  FieldsSchema with_defaults(FieldsSchema::Defaults::kYes);
  describe(value, with_defaults);
  EXPECT_EQ(json(with_defaults.schema("A resource.")), json::parse(R"({"type": "object", "description": "A resource.",
    "properties": {
      "replicas": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9, "default": 1,
                   "description": "Replicas."},
      "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535, "description": "Port."},
      "controller": {"type": "string", "maxLength": 10, "description": "Controller."},
      "start": {"type": "string", "format": "date-time", "description": "Start."},
      "end": {"type": "string", "format": "date-time", "description": "End."},
      "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "Anything."},
      "item": {"type": "object", "description": "Perhaps an item.", "required": ["name"], "properties": {
        "name": {"type": "string", "maxLength": 4, "pattern": "^[a-z]+$", "description": "Its name."},
        "weight": {"type": "number", "minimum": 0.0, "default": 1.0, "description": "Its weight."}}},
      "matches": {"type": "array", "maxItems": 2, "description": "Matches.", "items": {"type": "object", "properties": {
        "codes": {"type": "array", "minItems": 1, "maxItems": 3, "x-kubernetes-list-type": "set", "description": "Codes.",
                  "items": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 255}},
        "words": {"type": "array", "description": "Words.", "items": {"type": "string", "maxLength": 8}}}}},
      "group": {"type": "object", "description": "A group.", "default": {}, "properties": {
        "kind": {"type": "string", "enum": ["Round", "Square"], "default": "Round", "description": "The kind."}}}}})"));
  FieldsSchema without(FieldsSchema::Defaults::kNo);
  describe(value, without);
  EXPECT_THAT(without.schema("").dump(), Not(HasSubstr("default")));
}

// A field that is a number or one word, and an optional string that may be empty.
struct Loose {
  int count = 1;
  NumberForm form = NumberForm::kAbsent;
  std::optional<std::string> name;
};

void describe(Loose& value, Fields& fields) {
  fields.number_or_name("count", value.count, value.form, "auto", from_to(1, 8), "Count.");
  fields.field("name", value.name, "Name.");
}

TEST(FieldsReaders, NumberOrNameAndEmptyTextSurviveAllVisitors) {
  struct Case {
    const char* text;
    NumberForm form;
    int count;
    std::optional<std::string> name;
  };
  for (const Case& c :
       {Case{.text = "{}", .form = NumberForm::kAbsent, .count = 1, .name = {}},
        Case{.text = R"({"count":"auto"})", .form = NumberForm::kName, .count = 1, .name = {}},
        Case{.text = R"({"count":4,"name":""})", .form = NumberForm::kNumber, .count = 4, .name = ""}}) {
    SCOPED_TRACE(c.text);
    Loose from_json;
    ReadFindings findings;
    const json document = json::parse(c.text);
    JsonFieldsReader json_reader(document, {}, JsonFieldsReader::UnknownFields::kReport, findings);
    describe(from_json, json_reader);
    Loose from_yaml;
    yaml::Problems problems("f.yaml");
    YamlFieldsReader yaml_reader(yaml::parse_all(c.text, "f.yaml")->front(), "", problems);
    describe(from_yaml, yaml_reader);
    EXPECT_THAT(findings.problems, IsEmpty());
    EXPECT_TRUE(problems.empty());
    for (Loose* value : {&from_json, &from_yaml}) {
      EXPECT_EQ(value->form, c.form);
      EXPECT_EQ(value->count, c.count);
      EXPECT_EQ(value->name, c.name);
      json out = json::object();
      FieldsWriter writer(out, EmptyFields::kOmit);
      describe(*value, writer);
      EXPECT_EQ(out, document);
    }
  }
}

TEST(FieldsReaders, NumberOrNameHasLimitsSchemaAndReference) {
  Loose value{.count = 9, .form = NumberForm::kNumber, .name = {}};
  std::vector<FieldProblem> problems;
  FieldsValidator validator({.key = "r"}, problems);
  describe(value, validator);
  EXPECT_EQ(problems, (std::vector<FieldProblem>{{"r.count", "9 is too large; the maximum is 8"}}));
  FieldsSchema schema(FieldsSchema::Defaults::kYes);
  describe(value, schema);
  EXPECT_EQ(json(schema.schema(""))["properties"]["count"],
            json::parse(R"({"x-kubernetes-int-or-string": true, "minimum": 1, "maximum": 8, "pattern": "^auto$",
                            "description": "Count."})"));
  FieldsReference reference("");
  describe(value, reference);
  EXPECT_THAT(reference.markdown(3), HasSubstr("or `auto` |"));
  Loose read;
  ReadFindings findings;
  const json document = json::parse(R"({"count": "all"})");
  JsonFieldsReader reader(document, {.key = "r"}, JsonFieldsReader::UnknownFields::kReport, findings);
  describe(read, reader);
  EXPECT_THAT(findings.problems, IsEmpty());
  EXPECT_EQ(findings.unknown, std::vector<std::string>{R"(r.count: expected an integer or auto, got "all")"});
}

}  // namespace
}  // namespace oarlock
