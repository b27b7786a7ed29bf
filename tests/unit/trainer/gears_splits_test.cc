// Splits and their random draws, compared with those of cell-gears 0.1.2 (tests/data/gears_splits.json).
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/gears_goldens.h"
#include "tests/support/temporary_directory.h"
#include "workloads/gears/splits.h"

namespace oarlock::gears {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

nlohmann::json goldens() { return test::gears_golden("splits.json")["splits"]; }

struct Case {
  std::string golden;
  SplitConfig config;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const int64_t seed : {1, 42}) {
    const std::string suffix = "-" + std::to_string(seed);
    out.push_back({"simulation" + suffix, {.kind = SplitKind::kSimulation, .seed = seed}});
    out.push_back(
        {"simulation_single" + suffix + "-singles-only", {.kind = SplitKind::kSimulationSingle, .seed = seed}});
    out.push_back({"combo_seen0" + suffix, {.kind = SplitKind::kComboSeen0, .seed = seed}});
    out.push_back({"combo_seen1" + suffix, {.kind = SplitKind::kComboSeen1, .seed = seed}});
    out.push_back({"combo_seen2" + suffix, {.kind = SplitKind::kComboSeen2, .seed = seed}});
    out.push_back({"single" + suffix, {.kind = SplitKind::kSingle, .seed = seed}});
    out.push_back({"no_test" + suffix, {.kind = SplitKind::kNoTest, .seed = seed}});
    out.push_back({"no_split" + suffix, {.kind = SplitKind::kNoSplit, .seed = seed}});
    out.push_back(
        {"simulation" + suffix + "-size0.6-frac0.5",
         {.kind = SplitKind::kSimulation, .seed = seed, .train_gene_set_size = 0.6, .combo_seen2_train_frac = 0.5}});
  }
  return out;
}

TEST(NumpyRandom, DrawsAsNumpyDoes) {
  int draws = 0;
  const nlohmann::json all = goldens();
  for (const auto& [name, golden] : all.items()) {
    const uint32_t seed = name.find("-42") == std::string::npos ? 1 : 42;
    const bool reseeds = name.starts_with("simulation");
    NumpyRandom random(seed);
    for (const nlohmann::json& draw : golden["draws"]) {
      if (reseeds) random = NumpyRandom(seed);
      const auto from = draw["population"].get<NameList>();
      const auto size = draw["size"].get<int64_t>();
      EXPECT_EQ(draw["replace"].get<bool>() ? random.choice_with_replacement(from, size) : random.choice(from, size),
                draw["result"].get<NameList>())
          << name;
      ++draws;
    }
  }
  EXPECT_EQ(draws, 46);
}

TEST(GearsSplits, EqualTheOriginalsForSeeds1And42) {
  const nlohmann::json golden = goldens();
  const NameList conditions = golden["simulation-1"]["conditions_in_order"];
  ASSERT_EQ(conditions.size(), 45U);
  for (const auto& [name, config] : cases()) {
    const Result<Split> split = make_split(config, conditions);
    ASSERT_TRUE(split) << name << ": " << split.error().message;
    const nlohmann::json& sets = golden.at(name)["set2conditions"];
    EXPECT_EQ(split->train, sets.value("train", NameList())) << name;
    EXPECT_EQ(split->val, sets.value("val", NameList())) << name;
    EXPECT_EQ(split->test, sets.value("test", NameList())) << name;
    if (!golden[name].value("subgroup", nlohmann::json()).is_object()) continue;
    EXPECT_EQ(nlohmann::json(split->test_subgroups), golden[name]["subgroup"]["test_subgroup"]) << name;
    EXPECT_EQ(nlohmann::json(split->val_subgroups), golden[name]["subgroup"]["val_subgroup"]) << name;
  }
}

TEST(GearsSplits, NoHeldOutGeneIsTrainedOn) {
  const NameList conditions = goldens()["simulation-1"]["conditions_in_order"];
  for (int64_t seed = 0; seed < 20; ++seed) {
    const Split split = make_split({.seed = seed}, conditions).value();
    const NameList unseen = genes_of_all(split.test_subgroups.at("unseen_single"));
    for (const NameList* set : {&split.train, &split.val}) {
      for (const std::string& gene : genes_of_all(*set)) EXPECT_THAT(unseen, Not(Contains(gene)));
    }
    EXPECT_EQ(split.train.size() + split.val.size() + split.test.size(), conditions.size());
  }
}

TEST(GearsSplits, WhatMustBeTestedIsTested) {
  const NameList conditions = goldens()["simulation-1"]["conditions_in_order"];
  const Split split = make_split({.test_perts = {"G00", "G01"}}, conditions).value();
  EXPECT_THAT(split.test, Contains("ctrl+G00"));
  EXPECT_THAT(split.test, Contains("G01+ctrl"));
  const Split only = make_split({.test_perts = {"G00"}, .only_test_set_perts = true}, conditions).value();
  EXPECT_THAT(only.test_subgroups.at("unseen_single"), ElementsAre("ctrl+G00"));
  const Split genes = make_split({.kind = SplitKind::kSingle, .test_pert_genes = {"G02"}}, conditions).value();
  EXPECT_THAT(genes.test, ElementsAre("G02+ctrl"));
}

TEST(GearsSplits, CustomSplitsComeFromAFile) {
  const test::TemporaryDirectory directory;
  const std::string path = (directory.path() / "split.json").string();
  const NameList conditions{"ctrl", "A+ctrl", "B+ctrl", "A+B"};
  const auto split_of = [&](const std::string& text) {
    std::ofstream(path) << text;
    return make_split({.kind = SplitKind::kCustom, .split_dict_path = path}, conditions);
  };
  const Split split = split_of(R"({"train": ["A+ctrl", "ctrl"], "val": ["B+ctrl"], "test": ["A+B"]})").value();
  EXPECT_THAT(split.train, ElementsAre("ctrl", "A+ctrl"));
  EXPECT_THAT(split.val, ElementsAre("B+ctrl"));
  EXPECT_THAT(split.test, ElementsAre("A+B"));
  EXPECT_THAT(split_of(R"({"train": ["ctrl"]})")->test, IsEmpty());
  EXPECT_THAT(split_of("[]").error().message, AllOf(HasSubstr(path), HasSubstr("not a JSON object")));
  EXPECT_THAT(split_of(R"({"train": "ctrl"})").error().message, HasSubstr("\"train\" is not a list"));
  EXPECT_THAT(split_of(R"({"train": ["C+ctrl"]})").error().message, HasSubstr("no cell has the condition C+ctrl"));
  const std::string long_name = R"({"train": [")" + std::string(1 << 20, 'x') + "\"]}";
  EXPECT_LT(split_of(long_name).error().message.size(), 500U);
  std::filesystem::remove(path);
  const SplitConfig missing{.kind = SplitKind::kCustom, .split_dict_path = path};
  EXPECT_EQ(to_int(make_split(missing, conditions).error().code), to_int(ExitCode::kNoInput));
}

}  // namespace
}  // namespace oarlock::gears
