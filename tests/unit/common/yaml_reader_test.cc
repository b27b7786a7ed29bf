#include "yaml/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/text.h"

namespace oarlock::yaml {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Settings {
  int nodes = 1;
  double lr = 0.1;
  std::string name = "default";
  bool shuffle = false;
  std::vector<double> betas = {0.9, 0.999};
};

// Reads Settings and returns the problems as text; "" if there are none.
std::string read(const std::string& text, Settings& settings) {
  const auto documents = parse_all(text, "job.yaml");
  if (!documents) return documents.error().message;
  Problems problems("job.yaml");
  MapReader reader(documents->at(0), "", problems);
  reader.read("nodes", settings.nodes);
  reader.map("optimizer", [&](MapReader& optimizer) {
    optimizer.read("lr", settings.lr);
    optimizer.read("betas", settings.betas);
  });
  reader.read("name", settings.name);
  reader.read("shuffle", settings.shuffle);
  reader.finish();
  return problems.to_error().message;
}

TEST(YamlReader, ReadsTypedValues) {
  Settings settings;
  EXPECT_EQ(read("nodes: 2\noptimizer: {lr: 1e-4, betas: [0.8, 1]}\nname: \"7\"\nshuffle: true\n", settings), "");
  EXPECT_EQ(settings.nodes, 2);
  EXPECT_DOUBLE_EQ(settings.lr, 1e-4);
  EXPECT_THAT(settings.betas, ElementsAre(0.8, 1.0));
  EXPECT_EQ(settings.name, "7");
  EXPECT_TRUE(settings.shuffle);
}

TEST(YamlReader, KeepsDefaultForAbsentAndEmpty) {
  Settings settings;
  EXPECT_EQ(read("nodes:\noptimizer:\n", settings), "");
  EXPECT_EQ(settings.nodes, 1);
}

TEST(YamlReader, ReportsAllProblemsWithPositions) {
  Settings settings;
  const std::string message =
      read("nodes: two\noptimizer:\n  lrr: 1\n  betas: [0.9, x]\nname: 3\nshuffle: \"true\"\n", settings);
  EXPECT_THAT(message, HasSubstr("job.yaml:1:8: nodes: expected an integer, got 'two'"));
  EXPECT_THAT(message, HasSubstr("job.yaml:3:3: optimizer.lrr: unknown key; did you mean 'lr'?"));
  EXPECT_THAT(message, HasSubstr("job.yaml:4:16: optimizer.betas[1]: expected numbers, got 'x'"));
  EXPECT_THAT(message, HasSubstr("job.yaml:5:7: name: expected a string, got the number 3; put it in quotes"));
  EXPECT_THAT(message, HasSubstr("job.yaml:6:10: shuffle: expected true or false, got the string \"true\""));
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 4);
}

TEST(YamlReader, RejectsWrongShapes) {
  Settings settings;
  EXPECT_THAT(read("optimizer: adam\n", settings), HasSubstr("job.yaml:1:12: optimizer: expected a map, got 'adam'"));
  EXPECT_THAT(read("nodes: [1]\n", settings), HasSubstr("expected an integer, got a list"));
  EXPECT_THAT(read("nodes: 99999999999\n", settings), HasSubstr("99999999999 is out of range"));
  EXPECT_THAT(read("nodes: 1\nnodes: 2\n", settings), HasSubstr("job.yaml:2:1: duplicate key 'nodes'"));
  EXPECT_THAT(read("nodes: [1\n", settings), HasSubstr("job.yaml:1:8: the '[' that begins here has no end"));
}

TEST(YamlReader, Choices) {
  enum class Color { kRed, kBlue };
  constexpr std::pair<std::string_view, Color> kNames[] = {{"red", Color::kRed}, {"blue", Color::kBlue}};
  const auto documents = parse_all("a: blue\nb: bleu\n", "f");
  Problems problems("f");
  MapReader reader(documents->at(0), "", problems);
  Color color = Color::kRed;
  EXPECT_TRUE(reader.read<Color>("a", color, kNames));
  EXPECT_EQ(color, Color::kBlue);
  EXPECT_FALSE(reader.read<Color>("b", color, kNames));
  EXPECT_EQ(problems.to_error().message, "f:2:4: b: 'bleu' is not one of red, blue; did you mean 'blue'?");
}

TEST(YamlReader, ReadsJsonWithItsTypes) {
  const auto documents =
      parse_all(R"({"a": "1", "b": 1, "c": 1.5, "d": null, "e": [true, "true"], "f": {}, "g": yes, "h": ""})", "f");
  ASSERT_TRUE(documents);
  EXPECT_EQ(documents->at(0).to_json(),
            nlohmann::json::parse(R"({"a":"1","b":1,"c":1.5,"d":null,"e":[true,"true"],"f":{},"g":true,"h":""})"));
}

// As json.dump() writes it. In YAML, a plain string has no escapes.
TEST(YamlReader, ReadsSurrogatePairsOfJson) {
  const auto value_of = [](const std::string& text) {
    const auto documents = parse_all(text, "f.json");
    EXPECT_TRUE(documents) << documents.error().message;
    return documents ? documents->front().find("v")->text() : "";
  };
  EXPECT_EQ(value_of(R"({"v": "run \ud83d\ude80\uD834\uDD1E\\ud83d\u00e9"})"), "run \U0001F680\U0001D11E\\ud83dé");
  EXPECT_EQ(value_of(R"(v: \ud83d\ude80)"), R"(\ud83d\ude80)");
  // YAML has no pairs, and kubectl rejects them, too.
  for (const char* text : {R"({"v": "\ud83d"})", R"({"v": "\ude80\ud83d"})", R"(v: "\ud83d\ude80")"}) {
    const auto documents = parse_all(text, "f.json");
    ASSERT_FALSE(documents) << text;
    EXPECT_THAT(documents.error().message, ::testing::HasSubstr("is half of a surrogate pair")) << text;
  }
}

TEST(YamlReader, SeveralDocuments) {
  const auto documents = parse_all("---\na: 1\n---\n---\nb: 2\n", "f");
  ASSERT_TRUE(documents);
  EXPECT_EQ(documents->size(), 2u);
}

TEST(Suggest, SuggestsForTypingErrorsOnly) {
  EXPECT_EQ(suggest("batchsize", {"batch_size", "seed"}), "batch_size");
  EXPECT_EQ(suggest("epohcs", {"epochs", "steps"}), "epochs");
  EXPECT_EQ(suggest("colour", {"epochs", "steps"}), "");
  EXPECT_EQ(edit_distance("ab", "ba"), 1);
}

// At most a third of the length that was typed, and one letter of a short word.
TEST(Suggest, SuggestsNothingBeyondLargestDistance) {
  EXPECT_EQ(suggest("abcdefghi", {"xyzdefghi"}), "xyzdefghi");
  EXPECT_EQ(suggest("abcdefghi", {"wxyzefghi"}), "");
  EXPECT_EQ(suggest("abcdefgh", {"xycdefgh"}), "xycdefgh");
  EXPECT_EQ(suggest("abcdefgh", {"xyzdefgh"}), "");
  EXPECT_EQ(suggest("ab", {"ax"}), "ax");
  EXPECT_EQ(suggest("ab", {"xy"}), "");
}

// The configuration after overrides as JSON; else the problems.
std::string overridden(const std::string& text, const std::vector<std::string>& words) {
  const Node root = text.empty() ? empty_map() : parse_all(text, "f.yaml")->front();
  const std::string before = root.to_json().dump();
  const Result<Node> out = with_overrides(root, words);
  EXPECT_EQ(root.to_json().dump(), before);  // it is a copy
  EXPECT_TRUE(out || out.error().code == ExitCode::kUsage);
  return out ? out->to_json().dump() : out.error().message;
}

TEST(YamlOverrides, SetReplaceAndAppend) {
  const std::string file = "a: 1\nb: {c: 2, d: [3, {e: 4}]}\n";
  EXPECT_EQ(overridden(file, {}), R"({"a":1,"b":{"c":2,"d":[3,{"e":4}]}})");
  EXPECT_EQ(overridden(file, {"a=x=y"}), R"({"a":"x=y","b":{"c":2,"d":[3,{"e":4}]}})");
  EXPECT_EQ(overridden(file, {"b.d[1].e=4e-3", "b.d[2]=true"}), R"({"a":1,"b":{"c":2,"d":[3,{"e":0.004},true]}})");
  EXPECT_EQ(overridden(file, {"b=[{lr: 1}, \"2\"]"}), R"({"a":1,"b":[{"lr":1},"2"]})");
  EXPECT_EQ(overridden(file, {"a=", "b.c="}), R"({"a":null,"b":{"c":null,"d":[3,{"e":4}]}})");
  EXPECT_EQ(overridden("", {"m.n.o=1", "m.n.p[0].q=2", "m.n.o=3"}), R"({"m":{"n":{"o":3,"p":[{"q":2}]}}})");
}

TEST(YamlOverrides, ReportsAllProblems) {
  const std::string message = overridden(
      "a: 1\nb: [1]\n", {"a.x=1", "b[2]=1", "b.c=1", "lr", "=1", "b[x]=1", "c..d=1", "e=[", "f={a: 1, a: 2}"});
  EXPECT_THAT(message, HasSubstr("command line: a.x: 'a' is not a map, so there is no 'x' in it\n"));
  EXPECT_THAT(message, HasSubstr("command line: b[2]: 'b' has 1 element, so the next one is [1]\n"));
  EXPECT_THAT(message, HasSubstr("command line: b.c: 'b' is not a map"));
  EXPECT_THAT(message, HasSubstr("command line: 'lr' is not key=value, such as optimizer.lr=0.1\n"));
  EXPECT_THAT(message, HasSubstr("command line: '=1' is not key=value"));
  EXPECT_THAT(message, HasSubstr("command line: b[x]: is not a path of keys and indices"));
  EXPECT_THAT(message, HasSubstr("command line: c..d: is not a path of keys and indices"));
  EXPECT_THAT(message, HasSubstr("command line: e: the '[' that begins here has no end"));
  EXPECT_THAT(message, HasSubstr("command line: f: duplicate key 'a'; remove one"));
}

TEST(YamlOverrides, ProblemsNameCommandLineOrFile) {
  const Node root = parse_all("optimizer: {lrr: 1}\nepochs: x\n", "f.yaml")->front();
  const Result<Node> out = with_overrides(root, {"optimizer.betaz=[1]", "seed=many", "loader={thread: 1}"});
  ASSERT_TRUE(out) << out.error().message;
  Problems problems("f.yaml");
  MapReader reader(*out, "", problems);
  int number = 0;
  reader.read("epochs", number);
  reader.read("seed", number);
  reader.map("optimizer", [&](MapReader& optimizer) { optimizer.read("lr", number); });
  reader.map("loader", [&](MapReader& loader) { loader.read("threads", number); });
  reader.finish();
  EXPECT_EQ(problems.to_error().message,
            "f.yaml:2:9: epochs: expected an integer, got 'x'\n"
            "command line: seed: expected an integer, got 'many'\n"
            "f.yaml:1:13: optimizer.lrr: unknown key; did you mean 'lr'?\n"
            "command line: optimizer.betaz: unknown key; the known keys are lr\n"
            "command line: loader.thread: unknown key; did you mean 'threads'?");
}

TEST(YamlReader, RejectsDeepNesting) {
  const auto documents = parse_all(std::string(3000, '['), "deep.yaml");
  ASSERT_FALSE(documents);
  EXPECT_EQ(documents.error().code, ExitCode::kConfig);
}

}  // namespace
}  // namespace oarlock::yaml
