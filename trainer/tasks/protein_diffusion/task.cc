#include "trainer/tasks/protein_diffusion/task.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "trainer/tasks/protein_diffusion/noised_sequences.h"
#include "trainer/tasks/protein_diffusion/protein_data.h"
#include "trainer/tasks/protein_diffusion/samples.h"
#include "trainer/tasks/protein_diffusion/sedd/loss.h"
#include "trainer/tasks/protein_diffusion/task_config.h"

namespace oarlock {
namespace {

constexpr int64_t kFrequencySequences = 10'000;  // as many tell the frequencies of the data

LogScore log_score_of(torch::nn::Module& model) {
  return [&sedd = dynamic_cast<SeddModel&>(model)](const at::Tensor& x, const at::Tensor& sigma) {
    return sedd.forward(x, sigma);
  };
}

double total(const at::Tensor& values) { return values.to(at::kDouble).sum().item<double>(); }

// -ln of the frequency of each token, [tokens]; 0 for those that are no residue.
at::Tensor unigram_costs(const ResidueFrequencies& frequencies, int64_t tokens) {
  constexpr double kRarest = 1e-6;
  at::Tensor costs = at::zeros({tokens}, at::kDouble);
  auto* residue = costs.mutable_data_ptr<double>() + kFirstResidueToken;
  for (const double frequency : frequencies) *residue++ = -std::log(std::max(frequency, kRarest));
  return costs;
}

class ProteinDiffusion final : public Task {
 public:
  explicit ProteinDiffusion(Fields& root) {
    root.section("data", [&](Fields& data) { describe(data_, data); }, "protein sequences, as FASTA");
    describe(config_, root);
  }

  PrepareOn prepare_on() const override { return PrepareOn::kOneRankPerNode; }
  Result<void> prepare_data(const Logger& log) override { return prepare_proteins(data_, log); }

  Result<void> prepare() override {
    graph_ = make_graph(config_.graph, config_.model.tokens);
    Result<ProteinSplits> splits = open_proteins(data_);
    if (!splits) return tl::make_unexpected(splits.error());
    NoisedSequencesOptions options{.length = config_.model.length, .replacements = !graph_->absorbing()};
    train_.emplace(std::move(splits->train), options);
    options.spread_times = true;
    eval_.emplace(std::move(splits->eval), options);
    frequencies_ = residue_frequencies(train_->sequences(), kFrequencySequences);
    unigram_costs_ = unigram_costs(frequencies_, config_.model.tokens);
    return {};
  }

  const Dataset& train_data() const override { return *train_; }
  const Dataset& eval_data() const override { return *eval_; }

  std::shared_ptr<torch::nn::Module> build_model() override {
    return std::make_shared<SeddModel>(config_.model, graph_->states());
  }

  at::Tensor train_step(torch::nn::Module& model, const Batch& batch, const StepContext& context) override {
    const at::Tensor time = times_of_step(config_.curriculum, batch["time"], context.step);
    const at::Tensor losses = losses_of(model, batch, time, noise_factor(config_.curriculum, context.step));
    return reduced(losses).mean();
  }

  EvalOutput eval_step(torch::nn::Module& model, const Batch& batch) override {
    const at::Tensor losses = losses_of(model, batch, times_of(batch["time"]), 1);
    const at::Tensor& tokens = batch["tokens"];
    const at::Tensor residues = tokens.ge(kFirstResidueToken);
    return {.sums = {{"loss", total(reduced(losses))},
                     {"token_loss", total(losses)},
                     {"residue_loss", total(losses * residues)},
                     {"residue_unigram", total(unigram_costs_.to(tokens.device()).index_select(0, tokens.flatten()))},
                     {"residues", total(residues)}},
            .rows = {}};
  }

  // Where noise ends in the limiting state, as loglinear does up to eps, every loss is a bound in nats: the model's
  // -ln p is at most that. (cosine leaves much of a sequence as it was, and what that is worth is in no loss.) Beside
  // the loss of residues stands what it would be if only their frequencies in the training data were known.
  Metrics metrics(const MetricSums& totals, const EvalRows& /*rows*/) const override {
    const double count = totals.at("count");
    const double token_loss = totals.at("token_loss") / (count * static_cast<double>(config_.model.length));
    const double residues = std::max(totals.at("residues"), 1.0);
    const double residue_loss = totals.at("residue_loss") / residues;
    return {{"loss", totals.at("loss") / count},
            {"token_loss", token_loss},
            {"perplexity_bound", std::exp(token_loss)},
            {"residue_loss", residue_loss},
            {"residue_perplexity_bound", std::exp(residue_loss)},
            {"residue_unigram_loss", totals.at("residue_unigram") / residues}};
  }

  std::string graph_obstacle() const override {
    if (config_.curriculum.enabled) return "curriculum.enabled changes the noise from step to step";
    if (config_.model.activation_checkpointing)
      return "model.activation_checkpointing reads the state of the random generators back";
    return "";
  }

  Monitor monitor() const override { return {.metric = "loss", .mode = MetricMode::kMin}; }

  std::vector<EvalPass> passes() override {
    const SamplingConfig& sampling = config_.sampling;
    if (sampling.samples == 0) return {};
    seeds_.emplace(sampling.samples);
    return {{.name = "samples",
             .every_steps = sampling.every_steps,
             .batch_size = sampling.batch_size,
             .data = &*seeds_,
             .step = [this](torch::nn::Module& model, const Batch& batch) { return sample(model, batch); },
             .finish = [this](const MetricSums& /*totals*/, const EvalRows& rows,
                              int64_t steps) { return finish_samples(rows, steps); }}};
  }

 private:
  at::Tensor losses_of(torch::nn::Module& model, const Batch& batch, const at::Tensor& time, double factor) const {
    return position_losses(log_score_of(model), *graph_, config_.noise,
                           {.tokens = batch["tokens"],
                            .time = time,
                            .move = batch["move"],
                            .replacement = graph_->absorbing() ? at::Tensor() : batch["replacement"],
                            .noise_factor = factor});
  }

  // [n, length] -> [n]
  at::Tensor reduced(const at::Tensor& losses) const {
    return config_.loss.reduction == LossReduction::kSum ? losses.sum(-1) : losses.mean(-1);
  }

  EvalOutput sample(torch::nn::Module& model, const Batch& batch) const {
    const at::Device device = batch["seed"].device();
    const at::Tensor seeds = batch["seed"].cpu();
    const std::span<const int64_t> span(seeds.const_data_ptr<int64_t>(), static_cast<size_t>(seeds.numel()));
    const at::Tensor tokens = sample_sequences(config_.sampling.sampler, *graph_, config_.noise, log_score_of(model),
                                               span, config_.model.length, device);
    return {.sums = {}, .rows = {{"tokens", tokens}}};
  }

  Result<Metrics> finish_samples(const EvalRows& rows, int64_t steps) const {
    return write_samples(config_.sampling.folder, rows.columns.at("tokens"), frequencies_, steps);
  }

  ProteinDataConfig data_;
  DiffusionConfig config_;
  std::unique_ptr<Graph> graph_;
  std::optional<NoisedSequences> train_;
  std::optional<NoisedSequences> eval_;
  std::optional<SequenceSeeds> seeds_;
  ResidueFrequencies frequencies_{};  // of the training data
  at::Tensor unigram_costs_;
};

}  // namespace

std::unique_ptr<Task> make_protein_diffusion(Fields& root) { return std::make_unique<ProteinDiffusion>(root); }

}  // namespace oarlock
