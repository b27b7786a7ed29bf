#include "trainer/tasks/protein_diffusion/task_config.h"

#include "trainer/tasks/protein_diffusion/residues.h"

namespace oarlock {
namespace {

void describe(LossConfig& config, Fields& fields) {
  fields.choice<LossReduction>("reduction", config.reduction,
                               {{"mean", LossReduction::kMean}, {"sum", LossReduction::kSum}},
                               "over the tokens of a sequence: mean as protein_lig_sedd, sum as the original SEDD");
}

void describe(SamplingConfig& config, Fields& fields) {
  describe(config.sampler, fields);
  fields.field("samples", config.samples, at_least(0), "sequences to sample during training; 0: none");
  fields.field("every_steps", config.every_steps, at_least(0), "steps of training; 0: only at the end");
  fields.field("batch_size", config.batch_size, at_least(1), "sequences of a rank at a time");
  fields.field("folder", config.folder, "where step-N.fasta is written");
  if (config.samples > 0 && config.folder.empty()) fields.require("folder");
}

}  // namespace

void describe(DiffusionConfig& config, Fields& root) {
  root.section("graph", [&](Fields& fields) { describe(config.graph, fields); }, "what noise does");
  root.section("noise", [&](Fields& fields) { describe(config.noise, fields); }, "how much of it there is");
  root.section(
      "model", [&](Fields& fields) { describe(config.model, config.graph, kResidueTokens, fields); },
      "a transformer that gives the ratios of probabilities (SEDD)");
  root.section("loss", [&](Fields& fields) { describe(config.loss, fields); }, "score entropy");
  root.section("curriculum", [&](Fields& fields) { describe(config.curriculum, fields); }, "less noise at first");
  root.section("sampling", [&](Fields& fields) { describe(config.sampling, fields); }, "sequences during training");
}

}  // namespace oarlock
