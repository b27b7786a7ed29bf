#include "workloads/protein_diffusion/task.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/status_macros.h"
#include "workloads/protein_diffusion/config.h"
#include "workloads/protein_diffusion/data.h"
#include "workloads/protein_diffusion/graph.h"
#include "workloads/protein_diffusion/model.h"
#include "workloads/protein_diffusion/sampling.h"

namespace oarlock::protein_diffusion {

namespace {

constexpr int64_t kFrequencySequences = 10'000;  // used to estimate the frequencies of the training data

LogScore log_score_of(SeddModel& model) {
  return [&model](const at::Tensor& x, const at::Tensor& sigma) { return model.forward(x, sigma); };
}

double total(const at::Tensor& values) { return values.to(at::kDouble).sum().item<double>(); }

// Returns -ln of the frequency of each token, [tokens]; 0 for tokens that are not residues.
at::Tensor unigram_costs(const ResidueFrequencies& frequencies, int64_t tokens) {
  constexpr double kRarest = 1e-6;
  at::Tensor costs = at::zeros({tokens}, at::kDouble);
  auto* residue = costs.mutable_data_ptr<double>() + kFirstResidueToken;
  for (const double frequency : frequencies) *residue++ = -std::log(std::max(frequency, kRarest));
  return costs;
}

class ProteinDiffusion final : public ModelTask<SeddModel> {
 public:
  explicit ProteinDiffusion(Fields& root) { describe(config_, root); }

  Result<void> prepare_data(const Logger& log) override { return prepare_proteins(config_.data, log); }

  Result<void> prepare() override {
    graph_ = make_graph(config_.graph, config_.model.tokens);
    ASSIGN_OR_RETURN(ProteinSplits splits, open_proteins(config_.data));
    NoisedSequencesOptions options{.length = config_.model.length, .replacements = !graph_->absorbing()};
    train_.emplace(std::move(splits.train), options);
    options.spread_times = true;
    eval_.emplace(std::move(splits.eval), options);
    frequencies_ = residue_frequencies(train_->sequences(), kFrequencySequences);
    unigram_costs_ = unigram_costs(frequencies_, config_.model.tokens);
    return {};
  }

  const Dataset& train_data() const override { return *train_; }
  const Dataset& eval_data() const override { return *eval_; }

  std::shared_ptr<SeddModel> create_model() override {
    return std::make_shared<SeddModel>(config_.model, graph_->states());
  }

  at::Tensor training_loss(SeddModel& model, const Batch& batch, const StepContext& context) override {
    const at::Tensor time = curriculum_times(config_.curriculum, batch["time"], context.step);
    const at::Tensor losses = losses_of(model, batch, time, curriculum_noise_factor(config_.curriculum, context.step));
    return reduced(losses).mean();
  }

  EvalOutput evaluate(SeddModel& model, const Batch& batch) override {
    const at::Tensor losses = losses_of(model, batch, sample_times(batch["time"]), 1);
    const at::Tensor& tokens = batch["tokens"];
    const at::Tensor residues = tokens.ge(kFirstResidueToken);
    return {.sums = {{"loss", total(reduced(losses))},
                     {"token_loss", total(losses)},
                     {"residue_loss", total(losses * residues)},
                     {"residue_unigram", total(unigram_costs_.to(tokens.device()).index_select(0, tokens.flatten()))},
                     {"residues", total(residues)}},
            .rows = {}};
  }

  // If the noise ends in the limiting distribution, as loglinear does up to eps, every loss is an upper bound of -ln p
  // in nats. (cosine leaves much of a sequence unchanged, and no loss accounts for that part.) The baseline of the loss
  // of residues is residue_unigram_loss: the loss of a model that predicts their frequencies in the training data.
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

  std::vector<std::string> metric_names() const override {
    return {
        "loss", "token_loss", "perplexity_bound", "residue_loss", "residue_perplexity_bound", "residue_unigram_loss"};
  }

  std::string graph_obstacle() const override {
    if (config_.curriculum.enabled) return "curriculum.enabled changes the noise from step to step";
    if (config_.model.activation_checkpointing)
      return "model.activation_checkpointing reads the state of the random generators back";
    return "";
  }

  std::string inference_settings() const override {
    return nlohmann::json{{"tokens", "residue i of the alphabet has the token first_residue_token + i"},
                          {"alphabet", kResidues},
                          {"first_residue_token", kFirstResidueToken},
                          {"unknown_token", kUnknownToken}}
        .dump();
  }

  std::vector<UnusedSetting> unused_settings() const override {
    return {{"eval.rows_file", "its evaluation returns no values per sample"},
            {"ddp.sync_batch_norm", "its model has no batch normalization"}};
  }

  std::vector<EvalPass> passes() override {
    const SamplingConfig& sampling = config_.sampling;
    if (sampling.samples == 0) return {};
    seeds_.emplace(sampling.samples);
    return {{.name = "samples",
             .every_steps = sampling.every_steps,
             .batch_size = sampling.batch_size,
             .data = &*seeds_,
             .step = pass_step([this](SeddModel& model, const Batch& batch) { return sample(model, batch); }),
             .finish = [this](const MetricSums& /*totals*/, const EvalRows& rows,
                              int64_t steps) { return finish_samples(rows, steps); },
             .show =
                 [](torch::nn::Module& /*model*/, const EvalRows& rows) {
                   return PassMedia{.texts = {{"sequences", sequence_list(rows.columns.at("tokens"))}}, .images = {}};
                 }}};
  }

 private:
  at::Tensor losses_of(SeddModel& model, const Batch& batch, const at::Tensor& time, double factor) const {
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

  EvalOutput sample(SeddModel& model, const Batch& batch) const {
    const at::Device device = batch["seed"].device();
    const at::Tensor seeds = batch["seed"].cpu();
    const std::span<const int64_t> span(seeds.const_data_ptr<int64_t>(), static_cast<size_t>(seeds.numel()));
    const at::Tensor tokens = sample_sequences(config_.sampling.sampler, *graph_, config_.noise, log_score_of(model),
                                               span, config_.model.length, device);
    return {.sums = {}, .rows = {{"tokens", tokens}}};
  }

  Result<Metrics> finish_samples(const EvalRows& rows, int64_t steps) const {
    return write_samples(config_.sampling.directory, rows.columns.at("tokens"), frequencies_, steps);
  }

  DiffusionConfig config_;
  std::unique_ptr<Graph> graph_;
  std::optional<NoisedSequences> train_;
  std::optional<NoisedSequences> eval_;
  std::optional<SequenceSeeds> seeds_;
  ResidueFrequencies frequencies_{};  // of the training data
  at::Tensor unigram_costs_;
};

}  // namespace

std::unique_ptr<Task> make_task(Fields& root) { return std::make_unique<ProteinDiffusion>(root); }

}  // namespace oarlock::protein_diffusion
