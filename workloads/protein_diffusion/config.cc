#include "workloads/protein_diffusion/config.h"

#include <fmt/format.h>

#include "trainer/config/limits.h"
#include "workloads/formats/packed_records.h"
#include "workloads/protein_diffusion/data.h"

namespace oarlock::protein_diffusion {
namespace {

constexpr int64_t kMaxWidth = 65536;
constexpr int64_t kMaxLength = 1'000'000;
constexpr double kMaxSampled = 1e7;       // sequences; rank 0 stores them until they are written
constexpr double kMaxSamplerSteps = 1e5;  // a batch is sampled without an interruption

void describe(LossConfig& config, Fields& fields) {
  fields.choice<LossReduction>(
      "reduction", config.reduction, {{"mean", LossReduction::kMean}, {"sum", LossReduction::kSum}},
      "reduction over the tokens of a sequence: mean as in protein_lig_sedd, sum as in the original SEDD");
}

void describe(SamplingConfig& config, Fields& fields) {
  describe(config.sampler, fields);
  fields.field("samples", config.samples, from_to(0, kMaxSampled), "number of sequences in each sampling; 0: none");
  fields.field("every_steps", config.every_steps, from_to(0, kMaxSteps),
               "training steps between two samplings; 0: only at the end");
  fields.field("batch_size", config.batch_size, from_to(1, kMaxBatchSize), "sequences per batch and rank");
  fields.field("folder", config.directory,
               "directory in which the files step-N.fasta are written; required if samples is above 0");
  fields.scope("folder", Scope::kRank);
  if (config.samples > 0 && config.directory.empty()) fields.require("folder");
}

}  // namespace

void describe(DiffusionConfig& config, Fields& root) {
  root.section("data", [&](Fields& fields) { describe(config.data, fields); }, "protein sequences, as FASTA");
  root.section("graph", [&](Fields& fields) { describe(config.graph, fields); }, "effect of the noise on a token");
  root.section("noise", [&](Fields& fields) { describe(config.noise, fields); }, "noise schedule");
  root.section(
      "model", [&](Fields& fields) { describe(config.model, config.graph, kVocabularySize, fields); },
      "the score model: a transformer that estimates ratios of probabilities (SEDD)");
  root.section("loss", [&](Fields& fields) { describe(config.loss, fields); }, "score entropy");
  root.section(
      "curriculum", [&](Fields& fields) { describe(config.curriculum, fields); },
      "less noise at the beginning of training");
  root.section(
      "sampling", [&](Fields& fields) { describe(config.sampling, fields); }, "sequences sampled during training");
}

void describe(ProteinDataConfig& config, Fields& fields) {
  fields.field("path", config.path, "FASTA file, plain or gzip");
  fields.field("eval_path", config.eval_path, "FASTA file for evaluation; empty: a part of path is held out");
  fields.field("cache", config.cache,
               "directory of the converted files, one byte per residue; empty: next to each FASTA file");
  for (const char* key : {"path", "cache"}) fields.scope(key, Scope::kRank);
  fields.scope("eval_path", Scope::kPresence);
  fields.field("min_length", config.filter.min_length, from_to(1, PackedRecords::kMaxLength),
               "minimum number of residues; shorter records are skipped");
  fields.field("max_length", config.filter.max_length, from_to(1, PackedRecords::kMaxLength),
               "maximum number of residues; longer records are skipped");
  fields.field("max_sequences", config.filter.max_sequences, from_to(0, kMaxSamples),
               "number of records of path, from the first one that passes the filter; 0: all");
  fields.choice<UnknownResidues>(
      "unknown_residues", config.filter.unknown_residues,
      {{"drop", UnknownResidues::kDrop}, {"unk", UnknownResidues::kToken}},
      "treatment of X, B, Z, U, O, J, * and -. drop: omitted; unk: replaced by the token <unk>");
  fields.field("max_unknown", config.filter.max_unknown, from_to(0, 1),
               "maximum share of unknown residues; records with more are skipped");
  fields.field("eval_fraction", config.held_out.fraction, from_below(0, 1),
               "share of the sequences of path that is held out for evaluation");
  fields.field("split_seed", config.held_out.seed, at_least(0), "seed of the selection of the held-out sequences");
  fields.field("eval_sequences", config.eval_sequences, from_to(0, kMaxSamples),
               "number of sequences to evaluate, from the first one; 0: all");
  if (config.path.empty()) fields.problem("path", "must not be empty");
  if (config.filter.min_length > config.filter.max_length) {
    fields.problem("min_length",
                   fmt::format("{} is above max_length, {}", config.filter.min_length, config.filter.max_length));
  }
  fields.only_if("eval_fraction", config.eval_path.empty(), "nothing of path is held out: eval_path is set");
  fields.only_if("split_seed", config.eval_path.empty(), "nothing of path is held out: eval_path is set");
}

void describe(GraphConfig& config, Fields& fields) {
  fields.choice<GraphKind>("type", config.kind, {{"absorb", GraphKind::kAbsorb}, {"uniform", GraphKind::kUniform}},
                           "absorb: noise replaces a token by the mask; uniform: by any other token");
}

void describe(NoiseConfig& config, Fields& fields) {
  fields.choice<NoiseKind>(
      "type", config.kind,
      {{"loglinear", NoiseKind::kLogLinear}, {"geometric", NoiseKind::kGeometric}, {"cosine", NoiseKind::kCosine}},
      "how noise grows with time");
  const bool log_linear = config.kind == NoiseKind::kLogLinear;
  if (!fields.has("sigma_max") && config.kind == NoiseKind::kCosine) config.sigma_max = 0.8;
  fields.field("eps", config.eps, {.low = 0, .high = 1, .low_is_open = true, .high_is_open = true},
               "loglinear: probability that a token is unchanged at time 1");
  fields.field("sigma_min", config.sigma_min, above(0), "geometric, cosine: noise at time 0");
  fields.field("sigma_max", config.sigma_max, above(0),
               "geometric, cosine: noise at time 1; default: 20 for geometric, 0.8 for cosine");
  fields.only_if("eps", log_linear, "belongs to the noise loglinear");
  fields.only_if("sigma_min", !log_linear, "belongs to the noises geometric and cosine");
  fields.only_if("sigma_max", !log_linear, "belongs to the noises geometric and cosine");
  if (!log_linear && config.sigma_min >= config.sigma_max) fields.problem("sigma_min", "must be below sigma_max");
}

void describe(SeddConfig& config, const GraphConfig& graph, int64_t min_tokens, Fields& fields) {
  const bool absorbs = graph.kind == GraphKind::kAbsorb;
  fields.field("tokens", config.tokens, from_to(static_cast<double>(min_tokens), kMaxWidth),
               "size of the vocabulary, without the mask of the absorbing graph");
  fields.field("length", config.length, from_to(1, kMaxLength),
               "length of a sequence in tokens: longer ones are truncated, shorter ones padded");
  fields.field("hidden_size", config.hidden_size, from_to(2, kMaxWidth), "width of the transformer");
  fields.field("cond_dim", config.cond_dim, from_to(1, kMaxWidth), "width of the embedding of the noise");
  fields.field("n_blocks", config.n_blocks, from_to(1, 1000), "number of transformer blocks");
  fields.field("n_heads", config.n_heads, from_to(1, kMaxWidth), "number of attention heads in each block");
  fields.field("dropout", config.dropout, from_below(0, 1),
               "dropout probability after attention and MLP of each block");
  if (!absorbs && !fields.has("scale_by_sigma")) config.scale_by_sigma = false;
  fields.field(
      "scale_by_sigma", config.scale_by_sigma,
      "absorb: scale the output by the noise, so that training starts from the ratios of equally likely tokens");
  fields.field("activation_checkpointing", config.activation_checkpointing,
               "recompute each block in the backward pass instead of keeping its activations: less memory, more time");
  fields.only_if("scale_by_sigma", absorbs, "needs graph.type: absorb");
  const bool has_heads = config.n_heads >= 1 && config.n_heads <= kMaxWidth;
  if (has_heads && config.hidden_size % (2 * config.n_heads) != 0) {
    fields.problem("hidden_size", fmt::format("{} is not a multiple of 2 * n_heads ({}): heads have an even width",
                                              config.hidden_size, 2 * config.n_heads));
  }
}

void describe(CurriculumConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "start training with little noise");
  fields.field("preschool_time", config.preschool_time, from_to(1, kMaxSteps),
               "training steps until the full noise is used");
  fields.choice<CurriculumRamp>("difficulty_ramp", config.ramp,
                                {{"linear", CurriculumRamp::kLinear},
                                 {"exponential", CurriculumRamp::kExponential},
                                 {"cosine", CurriculumRamp::kCosine}},
                                "how noise grows over these steps");
  fields.field("probabilistic", config.probabilistic,
               "draw times with little noise more often, instead of reducing the noise of every time");
  fields.field("bias_strength", config.bias_strength, above(0),
               "probabilistic: times are drawn as u^(1 + strength) at the beginning");
  fields.only_if("bias_strength", config.probabilistic, "needs curriculum.probabilistic: true");
}

void describe(SamplerConfig& config, Fields& fields) {
  fields.choice<Predictor>("predictor", config.predictor,
                           {{"euler", Predictor::kEuler}, {"analytic", Predictor::kAnalytic}},
                           "numerical method of a step of the reverse process");
  fields.field("steps", config.steps, from_to(1, kMaxSamplerSteps), "number of steps from noise to a sequence");
  fields.field("noise_removal", config.noise_removal, "add a final step that removes the remaining noise");
}

}  // namespace oarlock::protein_diffusion
