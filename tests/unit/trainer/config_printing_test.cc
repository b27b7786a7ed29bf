// Overrides of the command line, the printed configuration, and the reference: the visitors of one description.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/yaml/reader.h"
#include "common/yaml/writer.h"
#include "trainer/config/fields_visitors.h"
#include "trainer/config/load.h"

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

enum class Kind { kRound, kSquare };

struct Item {
  std::string name = "n";
  double weight = 1;
};

// A field of every type.
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
  FieldsReader reader(node, "", problems);
  FieldsPrinter printer(reader);
  describe(value, printer);
  reader.finish();
  return {problems.to_error().message, yaml::to_yaml(printer.printed())};
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

TEST(FieldsPrinter, PrintedDefaultsReadBackUnchanged) {
  Everything value;
  const Read defaults = read("", value);
  EXPECT_EQ(defaults.problems, "");
  EXPECT_EQ(defaults.printed, kDefaults);
  Everything again;
  EXPECT_EQ(read(defaults.printed, again).printed, defaults.printed);
}

TEST(FieldsPrinter, PrintsValuesRead) {
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

TEST(FieldsReader, ReportsPlaceOfConditionalKeysAndListItems) {
  Everything value;
  EXPECT_EQ(read("kind: round\nside: 1\nsmall: 10\nitems:\n- {weigth: 2}\n- {weight: -1}\n", value).problems,
            "f.yaml:3:8: small: 10 is not in [0, 9]\n"
            "f.yaml:2:7: side: belongs to a square\n"
            "f.yaml:5:4: items[0].weigth: unknown key; did you mean 'weight'?\n"
            "f.yaml:6:12: items[1].weight: -1 is below 0");
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

// The whole configuration, with two tasks that have their own sections.
struct Sections {
  std::string path = "/d";
  int hidden = 4;
};

TaskNames tasks_with(Sections& sections) {
  return {{"images", "text"}, [&sections](const std::string& name, Fields& root) {
            root.section("data", [&](Fields& data) { data.field("path", sections.path, "where"); }, "the data");
            if (name == "images")
              root.section(
                  "model", [&](Fields& model) { model.field("hidden", sections.hidden, at_least(1), "width"); },
                  "the model");
          }};
}

TEST(Overrides, ReplaceValuesOfFile) {
  Sections sections;
  const auto config =
      parse_config("task: images\nepochs: 3\noptimizer: {lr: 0.1}\n", "f.yaml", tasks_with(sections),
                   {"optimizer.lr=4e-3", "optimizer.betas=[0.8, 0.9]", "data.path=/x", "log.every_steps=7"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->optimizer.lr, 4e-3);
  EXPECT_EQ(config->optimizer.betas, (std::vector<double>{0.8, 0.9}));
  EXPECT_EQ(config->log_every_steps, 7);
  EXPECT_EQ(config->epochs, 3);
  EXPECT_EQ(sections.path, "/x");
}

TEST(Overrides, ApplyToTrainingJobAndWithoutFile) {
  Sections sections;
  const auto job = parse_config("kind: TrainingJob\nspec: {trainer: {task: images, epochs: 2}}\n", "f.yaml",
                                tasks_with(sections), {"epochs=5"});
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->epochs, 5);
  const auto none = load_config({"", {"task=text", "steps=9", "data.path=q"}}, tasks_with(sections));
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(none->steps, 9);
  EXPECT_EQ(sections.path, "q");
}

TEST(Overrides, ReportAllProblemsWithPlace) {
  Sections sections;
  const auto config = parse_config("task: images\nepochs: 3\nbatch: {sise: 3}\n", "f.yaml", tasks_with(sections),
                                   {"optimizer.lrr=1", "seed=-1", "batch={size: 0}", "data.pth=1", "loader=3"});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ExitCode::kConfig);
  EXPECT_THAT(config.error().message,
              AllOf(HasSubstr("command line: optimizer.lrr: unknown key; did you mean 'lr'?"),
                    HasSubstr("command line: seed: -1 is below 0"), HasSubstr("command line: batch.size: 0 is below 1"),
                    HasSubstr("command line: data.pth: unknown key; did you mean 'path'?"),
                    HasSubstr("command line: loader: expected a map, got '3'")));
  EXPECT_THAT(config.error().message, Not(HasSubstr("sise")));  // batch was replaced as a whole
}

// Configurations whose sections have keys that are valid only with other settings.
TEST(PrintConfig, ReadsBackToTheSameConfiguration) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"epochs=", "steps=5"},
      {"optimizer.name=sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true"},
      {"optimizer.betas=[0.5, 0.6]", "optimizer.eps=1e-6", "seed=7"},
      {"optimizer.groups=[{preset: no_decay}, {match: fc1, lr: 0.1}]"},
      {"schedule.name=cosine", "schedule.warmup_steps=10"},
      {"schedule.name=step", "schedule.step_size=3"},
      {"schedule.name=multistep", "schedule.milestones=[3, 5]"},
      {"schedule.name=onecycle", "schedule.anneal=linear"},
      {"schedule.name=linear"},
      {"schedule={name: plateau, plateau: {patience: 3}}"},
      {"amp.enabled=true", "amp.dtype=fp16"},
      {"ema.enabled=true", "gradient.clip_norm=1"},
      {"gradient.clip_value=0.5", "batch.per=global"},
      {"early_stopping.patience=3"},
      {"early_stopping={patience: 3, metric: loss, init_best_score: 2}"},
      {"early_stopping={patience: 3, metrics: [{name: loss}, {name: accuracy, mode: max}], aggregate: any}"},
      {"checkpoint={dir: /ck, every_steps: 5, keep: 0}", "eval.every_epochs=2"},
      {"ddp.find_unused_parameters=true", "distributed.backend=gloo", "loader.threads=0"},
      {"ddp.static_graph=true", "cuda.graphs=true"},
  };
  for (const std::vector<std::string>& words : cases) {
    Sections sections;
    const std::string label = testing::PrintToString(words);
    const auto first = print_parsed_config("task: images\nepochs: 3\n", "f.yaml", tasks_with(sections), words);
    ASSERT_TRUE(first) << label << first.error().message;
    Sections again;
    const auto second = print_parsed_config(*first, "printed.yaml", tasks_with(again));
    ASSERT_TRUE(second) << label << second.error().message << "\n" << *first;
    EXPECT_EQ(*second, *first) << label;
  }
}

TEST(PrintConfig, IncludesEverySection) {
  Sections sections;
  const auto printed = print_config({"", {"task=images", "epochs=1"}}, tasks_with(sections));
  ASSERT_TRUE(printed) << printed.error().message;
  EXPECT_THAT(*printed, HasSubstr("task: images\ndata:\n  path: /d\nmodel:\n  hidden: 4\nseed: 0\nepochs: 1\n"));
  for (const char* section : {"batch:", "optimizer:", "schedule:", "checkpoint:", "eval:", "early_stopping:", "ddp:",
                              "distributed:", "loader:", "log:", "amp:", "ema:", "cuda:"}) {
    EXPECT_THAT(*printed, HasSubstr(std::string("\n") + section + "\n"));
  }
  EXPECT_THAT(*printed, HasSubstr("  lr: 0.001\n"));
}

TEST(ReferencePage, IncludesEveryKeyOfEveryTask) {
  Sections sections;
  const std::string page = reference_page(tasks_with(sections));
  EXPECT_THAT(page, HasSubstr("| `task` | `images`, `text` | required | the workload |\n"));
  EXPECT_THAT(page, HasSubstr("### `optimizer`\n"));
  EXPECT_THAT(page, HasSubstr("| `lr` | number, above 0 | `0.001` |"));
  EXPECT_THAT(page, HasSubstr("## The task `images`\n\n### `data`\n\nthe data.\n\n"));
  EXPECT_THAT(page, HasSubstr("| `hidden` | integer, at least 1 | `4` | width |\n\n## The task `text`\n"));
}

}  // namespace
}  // namespace oarlock
