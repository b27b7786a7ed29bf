// Overrides of the command line, the printed configuration, and the reference page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/config/load.h"

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

TEST(Overrides, LengthInOtherUnitReplacesThatOfFile) {
  Sections sections;
  const auto steps = parse_config("task: images\nepochs: 3\n", "f.yaml", tasks_with(sections), {"steps=5"});
  ASSERT_TRUE(steps) << steps.error().message;
  EXPECT_EQ(steps->steps, 5);
  EXPECT_EQ(steps->epochs, std::nullopt);
  const auto epochs = parse_config("task: images\nsteps: 9\n", "f.yaml", tasks_with(sections), {"epochs=2"});
  ASSERT_TRUE(epochs) << epochs.error().message;
  EXPECT_EQ(epochs->epochs, 2);
  EXPECT_EQ(epochs->steps, std::nullopt);
  const auto both = parse_config("task: images\n", "f.yaml", tasks_with(sections), {"epochs=2", "steps=5"});
  ASSERT_FALSE(both);
  EXPECT_THAT(both.error().message, HasSubstr("the length is given twice"));
}

TEST(Overrides, ReportAllProblemsWithPlace) {
  Sections sections;
  const auto config = parse_config("task: images\nepochs: 3\nbatch: {sise: 3}\n", "f.yaml", tasks_with(sections),
                                   {"optimizer.lrr=1", "seed=-1", "batch={size: 0}", "data.pth=1", "loader=3"});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ExitCode::kConfig);
  EXPECT_THAT(config.error().message, AllOf(HasSubstr("command line: optimizer.lrr: unknown key; did you mean 'lr'?"),
                                            HasSubstr("command line: seed: -1 is below 0"),
                                            HasSubstr("command line: batch.size: 0 is not in [1, 2147483647]"),
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

// ---- values that must be equal on all ranks ------------------------------------------------------------------------

AgreedValues agreed_with(const std::vector<std::string>& overrides) {
  Sections sections;
  std::vector<std::string> all = {"task=images", "steps=9", "checkpoint.dir=/a", "early_stopping.patience=3"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const auto config = load_complete_config({"", all}, tasks_with(sections));
  EXPECT_TRUE(config) << config.error().message;
  return config ? config->agreed : AgreedValues{};
}

TEST(AgreedSettings, IncludeAllButThoseOfARank) {
  struct Row {
    std::vector<std::string> overrides;
    std::string key{};  // of the difference; empty: none
  };
  for (const Row& row : {
           Row{.overrides = {"seed=1"}, .key = "seed"},
           Row{.overrides = {"optimizer.lr=0.25"}, .key = "optimizer.lr"},
           Row{.overrides = {"optimizer.betas=[0.5, 0.6]"}, .key = "optimizer.betas"},
           Row{.overrides = {"ema.enabled=true"}, .key = "ema.enabled"},
           Row{.overrides = {"gradient.clip_norm=1"}, .key = "gradient.clip_norm"},
           Row{.overrides = {"log.every_steps=3"}, .key = "log.every_steps"},  // a collective follows such a step
           Row{.overrides = {"early_stopping.init_best_score=.inf"}, .key = "early_stopping.init_best_score"},
           Row{.overrides = {"data.path=/x"}, .key = "data.path"},  // the task does not say more
           Row{.overrides = {"report.history=h"}, .key = "report.history"},
           Row{.overrides = {"pretrained.path=p"}, .key = "pretrained.path"},
           Row{.overrides = {"checkpoint.dir="}, .key = "checkpoint.dir"},
           Row{.overrides = {"checkpoint.dir=/b"}},
           Row{.overrides = {"device=cpu"}},
           Row{.overrides = {"gpu_ids=[3]"}},
           Row{.overrides = {"threads=2"}},
           Row{.overrides = {"cuda.memory_fraction=0.5"}},
           Row{.overrides = {"loader={threads: 1, prefetch: 7}"}},
           Row{.overrides = {"profile.steps=3"}},
           Row{.overrides = {"tracking={name: run, tensorboard: {enabled: true, dir: d}}"}},
       }) {
    const auto found = differences(agreed_with(row.overrides), agreed_with({}));
    std::vector<std::string> keys;
    for (const ValueDifference& item : found) keys.push_back(item.key);
    EXPECT_EQ(keys, row.key.empty() ? std::vector<std::string>{} : std::vector{row.key}) << row.overrides.front();
  }
}

TEST(AgreedSettings, ListsOfMapsHaveAValueForEachMember) {
  const AgreedValues one = agreed_with({"optimizer.groups=[{preset: no_decay, lr: 0.5}]"});
  const AgreedValues other = agreed_with({"optimizer.groups=[{preset: no_decay, lr: 0.25}]"});
  EXPECT_EQ(differences(one, other), (std::vector<ValueDifference>{{"optimizer.groups[0].lr", "0.5", "0.25"}}));
}

TEST(Agreement, NamesTheDifferenceThatExplainsOthers) {
  const AgreedValues of_rank_0 = {{"a", "1"}, {"revision", "x"}, {"task", "tiny"}, {"version", "1.0"}};
  EXPECT_TRUE(check_agreement(AgreedKind::kSettings, 3, of_rank_0, of_rank_0));
  AgreedValues values = of_rank_0;
  values.erase("a");
  values["b"] = "";
  const auto two = check_agreement(AgreedKind::kSettings, 3, values, of_rank_0);
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code, ExitCode::kConfig);
  EXPECT_EQ(two.error().message,
            "the ranks differ: a is absent on rank 3, but 1 on rank 0, and 1 other value differs; give all ranks the "
            "same configuration");
  // Another optimizer.name brings other keys.
  EXPECT_THAT(check_agreement(AgreedKind::kSettings, 3, {{"a", "1"}, {"name", "x"}}, {{"b", "1"}, {"name", "y"}})
                  .error()
                  .message,
              HasSubstr("name is x on rank 3, but y on rank 0, and 2 other values differ"));
  values["task"] = "other";
  EXPECT_THAT(check_agreement(AgreedKind::kSettings, 3, values, of_rank_0).error().message,
              HasSubstr("task is other on rank 3, but tiny on rank 0, and 2 other values differ"));
  values["version"] = "2.0";
  EXPECT_THAT(check_agreement(AgreedKind::kSettings, 3, values, of_rank_0).error().message,
              AllOf(HasSubstr("version is 2.0 on rank 3, but 1.0 on rank 0"), HasSubstr("run the same program")));
  EXPECT_EQ(check_agreement(AgreedKind::kData, 1, {{"data.train.samples", "2"}}, {}).error().code, ExitCode::kDataErr);
}

TEST(Agreement, ChangesOfAResumedRunAreListed) {
  EXPECT_EQ(changes({{"a", "1"}, {"b", "2"}}, {{"a", "1"}, {"b", "2"}}), "");
  EXPECT_EQ(changes({{"a", "1"}, {"b", "2"}}, {{"a", "3"}, {"c", ""}}),
            "a: 1 -> 3; b: 2 -> absent; c: absent -> empty");
  AgreedValues many;
  for (char key = 'a'; key < 'a' + 10; ++key) many[std::string(1, key)] = "1";
  EXPECT_THAT(changes({}, many), testing::EndsWith("h: absent -> 1; and 2 more"));
}

TEST(Agreement, ValuesSurviveTheirTransfer) {
  const AgreedValues values = {{"a", "1"}, {"b", ""}};
  EXPECT_EQ(agreed_values_from_json(to_json_object(values)), values);
  EXPECT_EQ(agreed_values_from_json(nlohmann::json::parse(R"({"a": "1", "b": 2})")), (AgreedValues{{"a", "1"}}));
  EXPECT_EQ(agreed_values_from_json(nlohmann::json::parse("[1]")), AgreedValues{});
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
