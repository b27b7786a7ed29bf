// The task protein_diffusion: its options, its random numbers, its metrics, and the files of samples.
#include "workloads/protein_diffusion/task.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <torch/utils.h>

#include <cmath>
#include <numeric>

#include "common/error.h"
#include "common/files.h"
#include "fields/yaml_reader.h"
#include "tests/support/protein_directory.h"
#include "workloads/protein_diffusion/sampling.h"

namespace oarlock::protein_diffusion {
namespace {

using test::ProteinDirectory;
using testing::AllOf;
using testing::HasSubstr;

struct Made {
  std::unique_ptr<Task> task;
  std::string problems;
};

Made make_task(const std::string& sections) {
  yaml::Problems problems("test.yaml");
  const auto documents = yaml::parse_all("{" + sections + "}", "test.yaml");
  YamlFieldsReader root(documents->front(), "", problems);
  Made made;
  made.task = protein_diffusion::make_task(root);
  root.finish();
  if (!problems.empty()) made.problems = problems.to_error().message;
  return made;
}

TEST(ProteinDiffusionOptions, DefaultsAndTheGuidesKeys) {
  EXPECT_EQ(make_task("").problems, "");
  EXPECT_EQ(make_task("model: {hidden_size: 768, cond_dim: 256, length: 512, n_blocks: 8, n_heads: 12, tokens: 36, "
                      "scale_by_sigma: true, dropout: 0.1}, graph: {type: absorb}, "
                      "noise: {type: cosine, sigma_min: 1e-4, sigma_max: 0.8}, "
                      "sampling: {predictor: euler, steps: 100, noise_removal: true, samples: 4, folder: /tmp/x, "
                      "every_steps: 2000}, "
                      "curriculum: {enabled: true, preschool_time: 10000, difficulty_ramp: linear}")
                .problems,
            "");
  EXPECT_EQ(make_task("graph: {type: uniform}, noise: {type: geometric}").problems, "");
}

TEST(ProteinDiffusionOptions, ProblemsNamePlaceAndRemedy) {
  EXPECT_THAT(make_task("model: {hidden_size: 100}").problems,
              HasSubstr("model.hidden_size: 100 is not a multiple of 2 * n_heads (24)"));
  EXPECT_THAT(make_task("model: {n_heads: 0}").problems, HasSubstr("model.n_heads: 0 is not in [1, 65536]"));
  EXPECT_THAT(make_task("model: {n_heads: 9223372036854775807}").problems, HasSubstr("model.n_heads: "));
  EXPECT_THAT(make_task("model: {tokens: 20}").problems, HasSubstr("model.tokens: 20 is not in [25, 65536]"));
  EXPECT_THAT(make_task("graph: {type: uniform}, model: {scale_by_sigma: true}").problems,
              HasSubstr("model.scale_by_sigma: needs graph.type: absorb"));
  EXPECT_THAT(make_task("graph: {type: absorbing}").problems, AllOf(HasSubstr("graph.type"), HasSubstr("absorb")));
  EXPECT_THAT(make_task("noise: {type: loglinear, sigma_min: 0.1}").problems,
              HasSubstr("noise.sigma_min: belongs to the noises geometric and cosine"));
  EXPECT_THAT(make_task("noise: {type: geometric, sigma_min: 2, sigma_max: 1}").problems,
              HasSubstr("noise.sigma_min: must be below sigma_max"));
  EXPECT_THAT(make_task("noise: {type: cosine, eps: 0.02}").problems,
              HasSubstr("noise.eps: belongs to the noise loglinear"));
  EXPECT_THAT(make_task("sampling: {samples: 4}").problems, HasSubstr("sampling.folder"));
  EXPECT_THAT(make_task("sampling: {steps: 0}").problems, HasSubstr("sampling.steps: 0 is not in [1, 100000]"));
  EXPECT_THAT(make_task("curriculum: {bias_strength: 3}").problems,
              HasSubstr("curriculum.bias_strength: needs curriculum.probabilistic: true"));
}

constexpr char kSmallModel[] =
    "model: {tokens: 25, length: 32, hidden_size: 16, cond_dim: 8, n_blocks: 1, n_heads: 2, dropout: 0}";

// A task with 200 proteins to train on and 100 to evaluate.
class PreparedTask {
 public:
  explicit PreparedTask(const std::string& sections = kSmallModel) {
    directory_.write("train.fasta", 200, 20, 50, 1);
    directory_.write("eval.fasta", 100, 32, 40, 2);
    Made made = make_task("data: {path: " + directory_.file("train.fasta") +
                          ", eval_path: " + directory_.file("eval.fasta") + "}, " + sections);
    EXPECT_EQ(made.problems, "");
    task_ = std::move(made.task);
    const Result<void> prepared = task_->prepare_data(Logger::silent()).and_then([&] { return task_->prepare(); });
    EXPECT_TRUE(prepared) << prepared.error().message;
  }
  Task& operator*() const { return *task_; }
  Task* operator->() const { return task_.get(); }
  const ProteinDirectory& directory() const { return directory_; }

 private:
  ProteinDirectory directory_;
  std::unique_ptr<Task> task_;
};

TEST(NoisedSequences, NumbersDependOnSeedAndSequenceAlone) {
  const PreparedTask task("graph: {type: uniform}, noise: {type: geometric}, " + std::string(kSmallModel));
  const std::vector<int64_t> some = {7, 150, 3};
  const std::vector<int64_t> one = {150};
  const Batch batch = make_batch(task->train_data(), some, 11);
  const Batch alone = make_batch(task->train_data(), one, 11);
  const Batch later = make_batch(task->train_data(), one, 12);
  for (const std::string name : {"tokens", "time", "move", "replacement"}) {
    EXPECT_TRUE(at::equal(batch[name][1], alone[name][0])) << name;
    EXPECT_EQ(at::equal(later[name], alone[name]), name == "tokens") << name;
  }
  EXPECT_EQ(batch["tokens"].sizes(), (at::IntArrayRef{3, 32}));
  for (const std::string name : {"time", "move", "replacement"}) {
    EXPECT_GE(batch[name].min().item<float>(), 0);
    EXPECT_LT(batch[name].max().item<float>(), 1);
  }
  EXPECT_FALSE(at::equal(batch["move"], batch["replacement"]));
}

TEST(NoisedSequences, TimesOfAnEvaluationFillTheRange) {
  const PreparedTask task;
  std::vector<int64_t> all(100);
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor times = std::get<0>(make_batch(task->eval_data(), all, 5)["time"].sort());
  EXPECT_LT((times.slice(0, 1) - times.slice(0, 0, -1)).max().item<float>(), 0.02) << "no gap";
  EXPECT_EQ(make_batch(task->eval_data(), all, 5).tensors.count("replacement"), 0U);
}

Metrics evaluated(Task& task, torch::nn::Module& model) {
  const at::NoGradGuard no_gradients;
  MetricSums totals;
  for (int64_t begin = 0; begin < task.eval_data().size(); begin += 25) {
    std::vector<int64_t> indices(25);
    std::iota(indices.begin(), indices.end(), begin);
    for (const auto& [name, sum] : task.eval_step(model, make_batch(task.eval_data(), indices, 1)).sums)
      totals[name] += sum;
  }
  totals["count"] = static_cast<double>(task.eval_data().size());
  return task.metrics(totals, {});
}

// All of them are residues, so both losses are of the same positions.
TEST(ProteinDiffusion, AnUntrainedModelCostsTheLogarithmOfTheTokens) {
  for (const auto& [reduction, scale] : {std::pair{"mean", 1.0}, {"sum", 32.0}}) {
    const PreparedTask task(std::string("loss: {reduction: ") + reduction + "}, " + kSmallModel);
    const auto model = task->build_model();
    const Metrics metrics = evaluated(*task, *model);
    const double expected = 0.999 * std::log(25);
    EXPECT_NEAR(metrics.at("token_loss"), expected, 0.15 * expected);  // 3,200 tokens
    EXPECT_NEAR(metrics.at("residue_loss"), metrics.at("token_loss"), 1e-9);
    EXPECT_NEAR(metrics.at("loss"), scale * metrics.at("token_loss"), 1e-6 * scale);
    EXPECT_NEAR(metrics.at("perplexity_bound"), std::exp(metrics.at("token_loss")), 1e-9);
    EXPECT_EQ(task->monitor().metric, "loss");
    for (const auto& [name, value] : metrics) EXPECT_THAT(task->metric_names(), testing::Contains(name));
    double entropy = 0;
    for (const double share : test::residue_shares()) entropy -= share * std::log(share);
    EXPECT_NEAR(metrics.at("residue_unigram_loss"), entropy, 0.02 * entropy);
  }
}

TEST(ProteinDiffusion, TheCurriculumFollowsTheStep) {
  const PreparedTask task(std::string("curriculum: {enabled: true, preschool_time: 100}, ") + kSmallModel);
  const auto model = task->build_model();
  std::vector<int64_t> all(200);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = make_batch(task->train_data(), all, 3);
  const auto loss_at = [&](int64_t step) {
    return task->train_step(*model, batch, {.step = step, .recorded = false}).item<double>();
  };
  EXPECT_LT(loss_at(0), 0.4 * loss_at(100)) << "a tenth of the noise";
  EXPECT_LT(loss_at(50), 0.9 * loss_at(100));
  EXPECT_EQ(loss_at(100), loss_at(1000));
  EXPECT_THAT(task->graph_obstacle(), testing::HasSubstr("curriculum"));
  EXPECT_EQ(PreparedTask(kSmallModel)->graph_obstacle(), "");
}

TEST(Samples, AreAPassThatWritesFasta) {
  const test::TemporaryDirectory out;
  const PreparedTask task("sampling: {samples: 5, batch_size: 2, steps: 4, every_steps: 10, folder: " +
                          out.path().string() + "}, " + kSmallModel);
  const auto model = task->build_model();
  model->eval();
  const std::vector<EvalPass> passes = task->passes();
  ASSERT_EQ(passes.size(), 1U);
  const EvalPass& pass = passes[0];
  EXPECT_EQ(pass.name, "samples");
  EXPECT_EQ(pass.every_steps, 10);
  EXPECT_EQ(pass.data->size(), 5);

  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> parts;
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{0, 1}, {2, 3}, {4}}) {
    const EvalOutput given = pass.step(*model, make_batch(*pass.data, ids, 9));
    EXPECT_TRUE(given.sums.empty());
    parts.push_back(given.rows.at("tokens"));
  }
  const at::Tensor tokens = at::cat(parts);
  EXPECT_EQ(tokens.sizes(), (at::IntArrayRef{5, 32}));
  EXPECT_LT(tokens.max().item<int64_t>(), 25) << "no mask";
  const std::vector<int64_t> others = {4, 2};
  const at::Tensor again = pass.step(*model, make_batch(*pass.data, others, 9)).rows.at("tokens");
  EXPECT_TRUE(at::equal(again[1], tokens[2])) << "a sequence is its seed's";

  const Result<Metrics> metrics = pass.finish({}, {{0, 1, 2, 3, 4}, {{"tokens", tokens.to(at::kDouble)}}}, 70);
  ASSERT_TRUE(metrics) << metrics.error().message;
  EXPECT_EQ(metrics->at("samples"), 5);
  EXPECT_GT(metrics->at("mean_length"), 15);
  EXPECT_GT(metrics->at("frequency_distance"), 0.1) << "untrained";
  EXPECT_THAT(*read_file(out.path() / "step-70.fasta"), testing::StartsWith(">step-70-sequence-0 length="));
}

at::Tensor tokens_of(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<at::Tensor> out;
  for (const auto& row : rows) out.push_back(at::tensor(row, at::kDouble));
  return at::stack(out);
}

TEST(Samples, FilesAndFrequencies) {
  const ProteinDirectory directory;
  const at::Tensor tokens = tokens_of({{5, 5, 6, 1}, {1, 1, 1, 1}, {6, 0, 24, 2}});  // AAC, nothing, CY
  ResidueFrequencies data{};
  data[0] = 1;  // only A
  const auto metrics = write_samples(directory.path() / "a/b", tokens, data, 12);
  ASSERT_TRUE(metrics) << metrics.error().message;
  EXPECT_EQ(*read_file(directory.path() / "a/b/step-12.fasta"),
            ">step-12-sequence-0 length=3\nAAC\n>step-12-sequence-2 length=2\nCY\n");
  EXPECT_DOUBLE_EQ(metrics->at("mean_length"), 5.0 / 3);
  EXPECT_DOUBLE_EQ(metrics->at("frequency_distance"), 0.6);
  EXPECT_DOUBLE_EQ(total_variation(data, data), 0);
  EXPECT_EQ(sequence_list(tokens), "- `AAC`\n- ``\n- `CY`\n");

  const std::vector<std::string> longer = {std::string(61, 'W')};
  EXPECT_EQ(format_fasta(longer, 0), ">step-0-sequence-0 length=61\n" + std::string(60, 'W') + "\nW\n");

  const auto refused = write_samples("/proc/nowhere", tokens, data, 1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace oarlock::protein_diffusion
