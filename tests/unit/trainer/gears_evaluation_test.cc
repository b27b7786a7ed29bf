// Metrics and predictions of GEARS, compared with those of cell-gears 0.1.2 and of the libraries that it uses.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <hdf5.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ddp/safetensors.h"
#include "fields/yaml_reader.h"
#include "tests/support/gears_goldens.h"
#include "tests/support/temporary_directory.h"
#include "trainer/nn/module_tensors.h"
#include "workloads/gears/data.h"
#include "workloads/gears/evaluation.h"
#include "workloads/gears/generator.h"
#include "workloads/gears/prediction.h"
#include "workloads/gears/task.h"

namespace oarlock::gears {
namespace {

using test::gears_file;
using test::gears_golden;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<double> doubles(const at::Tensor& tensor) {
  const at::Tensor row = tensor.to(at::kDouble).contiguous();
  return {row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel()};
}

std::vector<int64_t> numbers_of(const nlohmann::json& names, const std::vector<std::string>& genes) {
  std::vector<int64_t> out;
  for (const std::string name : names) out.push_back(std::find(genes.begin(), genes.end(), name) - genes.begin());
  return out;
}

TEST(GearsMetrics, AreTheOriginalsForEachCondition) {
  const nlohmann::json expected = gears_golden("metrics.json");
  const nlohmann::json dataset = gears_golden("dataset.json");
  const TensorMap tensors = read_safetensors(gears_file("metrics.safetensors"))->tensors;
  const std::vector<double> control =
      doubles(read_safetensors(gears_file("graphs.safetensors"))->tensors.at("ctrl_expression"));
  const auto names = expected["pert_cat"].get<std::vector<std::string>>();
  const auto genes = dataset["genes"].get<std::vector<std::string>>();
  for (const auto& [condition, metrics] : expected["metrics_pert"].items()) {
    std::vector<int64_t> cells;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == condition) cells.push_back(static_cast<int64_t>(i));
    }
    const at::Tensor own = at::tensor(cells);
    const at::Tensor cells_truth = tensors.at("truth").index_select(0, own).to(at::kDouble);
    const std::vector<double> prediction = doubles(tensors.at("pred").index_select(0, own).to(at::kDouble).mean(0));
    const std::vector<double> truth = doubles(cells_truth.mean(0));
    std::vector<int64_t> de = dataset["de_idx_of_condition"][condition];
    if (condition == "ctrl") de.clear();
    const ConditionMeans means{.prediction = prediction, .truth = truth, .control = control};
    const ConditionScore scored = score(means, de);
    EXPECT_NEAR(scored.mse, metrics["mse"].get<double>(), 1e-6) << condition;
    EXPECT_NEAR(scored.pearson, metrics["pearson"].get<double>(), 1e-5) << condition;
    EXPECT_NEAR(scored.mse_de, metrics["mse_de"].get<double>(), 1e-6) << condition;
    EXPECT_NEAR(scored.pearson_de, metrics["pearson_de"].get<double>(), 1e-5) << condition;
    if (!expected["deeper_analysis"].contains(condition) || condition == "ctrl") continue;
    EXPECT_NEAR(scored.pearson_delta, expected["deeper_analysis"][condition]["pearson_delta"].get<double>(), 1e-5);

    const std::string key = dataset["condition_name_of"][condition];
    const std::vector<int64_t> top = numbers_of(dataset["uns"]["top_non_dropout_de_20"][key], genes);
    const std::vector<double> deviation =
        doubles(cells_truth.index_select(1, at::tensor(top)).std(0, /*unbiased=*/false));
    const NonDropoutScore rest = score_non_dropout(means, top, deviation);
    const nlohmann::json& theirs = expected["non_dropout_analysis"][condition];
    EXPECT_NEAR(rest.frac_opposite_direction, theirs["frac_opposite_direction_top20_non_dropout"].get<double>(), 1e-9);
    EXPECT_NEAR(rest.frac_sigma_below_1, theirs["frac_sigma_below_1_non_dropout"].get<double>(), 1e-9) << condition;
    EXPECT_NEAR(rest.mse, theirs["mse_top20_de_non_dropout"].get<double>(), 1e-6) << condition;
  }
}

TEST(GearsMetrics, WhatDoesNotVaryHasNoCorrelation) {
  EXPECT_EQ(pearson(std::vector<double>{1, 1, 1}, std::vector<double>{1, 2, 3}), 0);
  EXPECT_DOUBLE_EQ(pearson(std::vector<double>{1, 2, 3}, std::vector<double>{3, 2, 1}), -1);
}

TEST(GeneticInteraction, ScoresAreThoseOfTheOriginalsLibraries) {
  for (const nlohmann::json& example : gears_golden("interaction.json")) {
    const InteractionScores scores =
        score_interaction(example["first"].get<std::vector<double>>(), example["second"].get<std::vector<double>>(),
                          example["both"].get<std::vector<double>>());
    ASSERT_EQ(scores.size(), example["scores"].size());
    for (const auto& [name, value] : scores) EXPECT_NEAR(value, example["scores"][name].get<double>(), 1e-9) << name;
  }
}

TEST(GeneticInteraction, AdditiveEffectsHaveCoefficientsOfOneAlsoAmongManyGenes) {
  std::vector<double> first;
  std::vector<double> second;
  std::vector<double> both;
  for (int i = 0; i < 600; ++i) {  // 179,700 pairs: some are drawn
    first.push_back(std::sin(i));
    second.push_back(std::cos(1.7 * i));
    both.push_back(first.back() + second.back());
  }
  const Coefficients c = theil_sen(first, second, both);
  EXPECT_NEAR(c.first, 1, 1e-9);
  EXPECT_NEAR(c.second, 1, 1e-9);
  EXPECT_DOUBLE_EQ(distance_correlation({first}, {first}), 1);
}

class PlantedData : public ::testing::Test {
 protected:
  PlantedData() { planted_ = write_planted_cells(directory_.path(), {.pairs = 10, .cells = 12, .control_cells = 50}); }

  GearsDataConfig config() const {
    GearsDataConfig config;
    config.path = (directory_.path() / "cells.h5ad").string();
    config.gene2go = (directory_.path() / "gene2go.json").string();
    return config;
  }
  GearsData open(const GearsDataConfig& config) const {
    const Result<void> prepared = prepare_gears_data(config, {}, Logger::silent());
    if (!prepared) throw std::runtime_error(prepared.error().message);
    return open_gears_data(config, {}).value();
  }

  test::TemporaryDirectory directory_;
  Planted planted_;
};

TEST_F(PlantedData, CellsAreThoseThatWerePlanted) {
  const GearsData data = open(config());
  EXPECT_EQ(data.store.genes(), planted_.genes);
  EXPECT_EQ(data.store.cells(), 50 + 30 * 12);
  EXPECT_EQ(data.perturbations.size(), 20U);
  const at::Tensor control = data.store.means()[data.control()];
  for (size_t i = 1; i < planted_.conditions.size(); ++i) {
    const at::Tensor change = data.store.means()[data.store.index_of(planted_.conditions[i])] - control;
    EXPECT_GT(pearson(doubles(change), planted_.effect[i]), 0.85) << planted_.conditions[i];
  }
}

TEST_F(PlantedData, EachCellHasAControlThatOnlyTheSeedDecidesAbout) {
  const GearsData data = open(config());
  std::set<int64_t> used;
  for (int64_t cell = 0; cell < data.store.cells(); ++cell) {
    const int64_t control = matched_control(data, 1, cell);
    EXPECT_EQ(data.store.condition_of(control), data.control());
    EXPECT_EQ(control == cell, data.store.condition_of(cell) == data.control());
    used.insert(control);
  }
  EXPECT_EQ(used.size(), 50U);
  EXPECT_NE(matched_control(data, 1, 100), matched_control(data, 2, 100));
  const TrainingCells cells(data, data.train, 1);
  const std::vector<int64_t> forward{0, 60, 70};
  const std::vector<int64_t> backward{70, 60, 0};
  const Batch a = make_batch(cells, forward);
  const Batch b = make_batch(cells, backward);
  for (const char* name : {"x", "y", "condition", "perturbed"}) EXPECT_TRUE(a[name].equal(b[name].flip(0))) << name;
  EXPECT_TRUE(a["x"][0].equal(a["y"][0])) << "a control cell";
  EXPECT_FALSE(a["x"][1].equal(a["y"][1]));
}

TEST_F(PlantedData, GroupsHoldEveryCellOnceAndAFewAtATime) {
  const GearsData data = open(config());
  const GroupedCells groups(data.store, groups_of_conditions(data, data.val, 1, 5), data.perturbed);
  EXPECT_EQ(groups.size(), std::ssize(data.val) * 3) << "12 cells as 5, 5 and 2";
  const std::vector<int64_t> two{0, 2};
  const Batch batch = make_batch(groups, two);
  EXPECT_TRUE(batch["begin"].equal(at::tensor({0, 5, 7}, at::kLong)));
  EXPECT_EQ(batch["x"].size(0), 7);
  EXPECT_EQ(batch["group"][1].item<int64_t>(), data.val[0]);
}

// As after a power failure that lost blocks of the files.
TEST_F(PlantedData, DamagedFilesAreConvertedAgain) {
  namespace fs = std::filesystem;
  const auto expression = [](const GearsData& data) {
    std::vector<float> out(static_cast<size_t>(data.store.gene_count()));
    data.store.expression(7, out);
    return out;
  };
  const GearsData data = open(config());
  const fs::path cells = data.entry->path();
  for (const char* name : {"values.f32", "columns.i32", "begin.i64", "condition.i32", "means.f64", "counted.u8"}) {
    SCOPED_TRACE(name);
    const fs::path path = cells / name;
    const std::string zeros(fs::file_size(path), '\0');
    fs::remove(path);  // `data` has mapped it
    std::ofstream(path, std::ios::binary) << zeros;
    const GearsData again = open_gears_data(config(), {}).value();
    EXPECT_EQ(expression(again), expression(data));
    EXPECT_TRUE(again.store.means().equal(data.store.means()));
    std::ofstream(path, std::ios::trunc).close();
    EXPECT_TRUE(open_gears_data(config(), {}));
  }
}

// Adds 1 to the first expression value of a cell in the file.
void change_cell(const std::filesystem::path& file, const GearsData& data, int64_t cell) {
  std::vector<int64_t> begin(static_cast<size_t>(data.store.cells()) + 1);
  std::ifstream(data.entry->path() / "begin.i64", std::ios::binary)
      .read(reinterpret_cast<char*>(begin.data()), static_cast<std::streamsize>(begin.size() * sizeof(int64_t)));
  std::vector<float> values(static_cast<size_t>(begin.back()));
  const hid_t opened = H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t set = H5Dopen2(opened, "X/data", H5P_DEFAULT);
  ASSERT_GE(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  values[static_cast<size_t>(begin[static_cast<size_t>(cell)])] += 1;
  ASSERT_GE(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  H5Dclose(set);
  H5Fclose(opened);
}

// The cells of the conditions that are only evaluated are in no batch, but in the metrics.
TEST_F(PlantedData, FingerprintsDependOnTheCellsOfEverySet) {
  const auto fingerprints = [&] {
    const std::string text = "data: {path: '" + config().path + "', gene2go: '" + config().gene2go + "'}";
    yaml::Problems problems("test.yaml");
    const auto documents = yaml::parse_all(text, "test.yaml");
    YamlFieldsReader root(documents->front(), "", problems);
    const std::unique_ptr<Task> task = make_task(root);
    const Result<void> prepared = task->prepare();
    EXPECT_TRUE(prepared) << prepared.error().message;
    auto out = task->fingerprints();
    out["train"] = task->train_data().fingerprint();
    out["eval"] = task->eval_data().fingerprint();
    return out;
  };
  for (const auto set : {&GearsData::train, &GearsData::val, &GearsData::test}) {
    const GearsData data = open(config());
    const auto before = fingerprints();
    change_cell(config().path, data, data.store.cells_of((data.*set).at(0)).front());
    EXPECT_NE(fingerprints(), before);
  }
}

TEST_F(PlantedData, PreparedOnceWhateverIsTrained) {
  const auto directories = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path() / "cells.h5ad.oarlock")) {
      if (entry.is_directory()) names.insert(entry.path().filename());
    }
    return names;
  };
  open(config());
  const std::set<std::string> first = directories();
  EXPECT_EQ(first.size(), 2U) << "cells and co-expression";
  const auto time = std::filesystem::last_write_time(directory_.path() / "cells.h5ad.oarlock" / *first.begin());
  open(config());
  EXPECT_EQ(directories(), first);
  EXPECT_EQ(std::filesystem::last_write_time(directory_.path() / "cells.h5ad.oarlock" / *first.begin()), time);
  GearsDataConfig other = config();
  other.split.seed = 42;
  open(other);
  EXPECT_EQ(directories().size(), 3U) << "another split has another co-expression";
}

TEST_F(PlantedData, PerturbationsOutsideTheOntologyAreLeftOut) {
  GearsDataConfig limited = config();
  limited.gene_set_path = (directory_.path() / "genes.txt").string();
  {
    std::ofstream genes(limited.gene_set_path);
    for (int i = 1; i < 20; ++i) genes << planted_.genes[static_cast<size_t>(i)] << "\n";
  }
  const GearsData data = open(limited);
  EXPECT_EQ(data.perturbations.size(), 19U);
  EXPECT_THAT(data.left_out,
              ElementsAre(testing::Pair("a gene is not in " + limited.gene_set_path + " (data.gene_set_path)",
                                        Contains("G00+ctrl"))));
  for (const int64_t condition : data.train) {
    EXPECT_THAT(genes_of(data.store.conditions()[static_cast<size_t>(condition)].name), Not(Contains("G00")));
  }
}

// Returns why a condition is left out; empty if it is not.
std::string reason_of(const GearsData& data, const std::string& condition) {
  for (const auto& [reason, conditions] : data.left_out)
    if (std::ranges::find(conditions, condition) != conditions.end()) return reason;
  return "";
}

// Each condition has the first reason that applies to it.
TEST_F(PlantedData, LeftOutPerturbationsHaveTheirReason) {
  const std::string list = (directory_.path() / "genes.txt").string();
  const std::string terms = (directory_.path() / "terms.json").string();
  nlohmann::json all = nlohmann::json::parse(std::ifstream(config().gene2go));
  all.erase("G05");
  std::ofstream(terms) << all;
  std::ofstream genes(list);
  for (int i = 1; i < 20; ++i) genes << planted_.genes[static_cast<size_t>(i)] << "\n";
  genes.close();
  struct {
    const char* what;
    std::string gene_set_path;
    std::string gene2go;
    std::map<std::string, std::string> reasons{};  // of a single gene; an empty one: not left out
  } cases[] = {
      {.what = "all genes of the data have terms",
       .gene_set_path = "",
       .gene2go = config().gene2go,
       .reasons = {{"G00", ""}, {"G05", ""}}},
      {.what = "a gene without terms",
       .gene_set_path = "",
       .gene2go = terms,
       .reasons = {{"G00", ""}, {"G05", "a gene is not in " + terms + " (data.gene2go)"}}},
      {.what = "a gene that is not in the list",
       .gene_set_path = list,
       .gene2go = config().gene2go,
       .reasons = {{"G00", "a gene is not in " + list + " (data.gene_set_path)"}, {"G05", ""}}},
      {.what = "a list and terms",
       .gene_set_path = list,
       .gene2go = terms,
       .reasons = {{"G00", "a gene is not in " + list + " (data.gene_set_path)"},
                   {"G01", ""},
                   {"G05", "a gene is not in " + terms + " (data.gene2go)"}}},
  };
  for (const auto& item : cases) {
    SCOPED_TRACE(item.what);
    GearsDataConfig limited = config();
    limited.gene_set_path = item.gene_set_path;
    limited.gene2go = item.gene2go;
    const GearsData data = open(limited);
    for (const auto& [gene, reason] : item.reasons) EXPECT_EQ(reason_of(data, gene + "+ctrl"), reason) << gene;
  }
}

TEST_F(PlantedData, QueriesAreCheckedAndNumbered) {
  const GearsData data = open(config());
  GearsPredictConfig predict;
  predict.perturbations = {"G03", "G01+G02"};
  predict.interactions = {"G03+G04"};
  const Queries queries = make_queries(predict, data).value();
  EXPECT_THAT(queries.names, ElementsAre("G03", "G01+G02", "G04", "G03+G04"));
  EXPECT_TRUE(queries.perturbed.equal(at::tensor({3, -1, 1, 2, 4, -1, 3, 4}, at::kLong).view({4, 2})));
  const auto message_of = [&](const std::string& name, bool interaction) {
    GearsPredictConfig wrong;
    (interaction ? wrong.interactions : wrong.perturbations) = {name};
    const Result<Queries> refused = make_queries(wrong, data);
    EXPECT_EQ(to_int(refused.error().code), to_int(ExitCode::kConfig));
    return refused.error().message;
  };
  EXPECT_THAT(message_of("TP53", false), AllOf(HasSubstr("predict.perturbations"), HasSubstr("TP53")));
  EXPECT_THAT(message_of("G01+G02+G03", false), HasSubstr("G01+G02+G03"));
  EXPECT_THAT(message_of("G01", true), AllOf(HasSubstr("predict.interactions"), HasSubstr("pair")));
}

TEST_F(PlantedData, PredictingTheMeansScoresPerfectlyAndTheBaselineDoesNot) {
  const GearsData data = open(config());
  GroupMeans perfect;
  for (const int64_t condition : data.test) {
    perfect.groups.push_back(condition);
    perfect.mean.push_back(doubles(data.store.means()[condition]));
  }
  const auto results = GearsEvaluation(data).results(perfect, data.split.test_subgroups);
  const Metrics metrics = summarize(results);
  EXPECT_EQ(metrics.at("mse"), 0);
  EXPECT_EQ(metrics.at("mse_de"), 0);
  EXPECT_NEAR(metrics.at("pearson_delta"), 1, 1e-12);
  EXPECT_GT(metrics.at("baseline_mse_de"), 0.1);
  EXPECT_TRUE(metrics.contains("unseen_single_mse_de"));
  EXPECT_EQ(metrics.at("frac_sigma_below_1_non_dropout"), 1);
  const std::vector<std::string> names = summary_names();
  for (const auto& [name, value] : metrics) EXPECT_THAT(names, testing::Contains(name));
}

// The mean over 300 control cells of what model-plain and model-uncertainty predict.
TEST(GearsPrediction, IsTheOriginals) {
  for (const char* kind : {"plain", "uncertainty"}) {
    const auto model_file = read_safetensors(gears_file(std::string("model_") + kind + ".safetensors")).value();
    const auto predicted = read_safetensors(gears_file(std::string("predict_") + kind + ".safetensors")).value();
    const nlohmann::json config = nlohmann::json::parse(model_file.metadata.at("config"));
    const auto edges = [&](const std::string& name) {
      const at::Tensor& index = model_file.tensors.at(name);
      return GraphEdges{index[0], index[1], model_file.tensors.at(name + "_weight").to(at::kDouble)};
    };
    GearsModel model(
        {.hidden_size = 12, .uncertainty = std::string(kind) == "uncertainty", .original_defects = true},
        {.genes = 60, .perturbations = 59, .coexpression = edges("G_coexpress"), .ontology = edges("G_go")});
    model.to(at::kDouble);  // float32 alone differs by more than the tolerance between vector units
    const at::NoGradGuard no_grad;
    for (auto& [name, tensor] : unique_parameters(model)) tensor.copy_(model_file.tensors.at("weight." + name));
    for (auto& [name, tensor] : unique_buffers(model)) tensor.copy_(model_file.tensors.at("buffer_after." + name));
    model.eval();
    const at::Tensor x =
        predicted.tensors.at("control_X").index_select(0, predicted.tensors.at("control_cells")).to(at::kDouble);
    for (const auto& [name, genes] :
         {std::pair<std::string, std::vector<int64_t>>{"G01", {1, -1}}, {"G02_G05", {2, 5}}}) {
      const at::Tensor ours = model.forward(x, at::tensor(genes).expand({300, 2})).expression.mean(0);
      const at::Tensor& theirs = predicted.tensors.at("predict." + name);
      EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-5 * theirs.abs().max().item<double>()) << kind << name;
    }
  }
}

}  // namespace
}  // namespace oarlock::gears
