// The configuration of the task protein_diffusion. Keys that also exist in the Python originals have the same names.
#pragma once

#include <cstdint>
#include <string>

#include "fields/fields.h"

namespace oarlock::protein_diffusion {

// Treatment of letters that are not one of the 20 amino acids.
enum class UnknownResidues {
  kDrop,   // omitted, as by the tokenizer of the Python original
  kToken,  // <unk>
};

// Selects the records of a FASTA file. Lengths are in residues as they are in the file, before letters are dropped.
struct SequenceFilter {
  int64_t min_length = 20;
  int64_t max_length = 512;
  int64_t max_sequences = 0;  // only the first records that pass; 0: all
  UnknownResidues unknown_residues = UnknownResidues::kDrop;
  double max_unknown = 0.05;  // largest share of unknown residues in a record that passes
};

// Selects the held-out sequences: those whose tokens, hashed with the seed, are below the fraction. The same sequence
// is therefore on the same side in every file, and a duplicate of a training sequence is never held out.
struct HeldOut {
  double fraction = 0;
  int64_t seed = 0;
};

// The section "data".
struct ProteinDataConfig {
  std::string path = "/usr/share/doc/mmseqs2/example-data/DB.fasta.gz";  // Debian's package mmseqs2-examples
  std::string eval_path;                                                 // empty: a part of `path` is held out
  std::string cache;                                                     // empty: next to each file
  SequenceFilter filter;                                                 // max_sequences applies to `path` only
  HeldOut held_out{.fraction = 0.05, .seed = 42};
  int64_t eval_sequences = 0;  // only the first ones; 0: all
};

enum class GraphKind { kAbsorb, kUniform };

// The section "graph".
struct GraphConfig {
  GraphKind kind = GraphKind::kAbsorb;
};

enum class NoiseKind { kLogLinear, kGeometric, kCosine };

// The section "noise".
struct NoiseConfig {
  NoiseKind kind = NoiseKind::kLogLinear;
  double eps = 1e-3;        // loglinear: at t = 1 a token has moved with probability 1 - eps
  double sigma_min = 1e-4;  // geometric, cosine: the noise at t = 0
  double sigma_max = 20;    // geometric, cosine: the noise at t = 1; cosine: 0.8
};

// The section "model". With the defaults and the absorbing graph the model has 66,724,133 parameters.
struct SeddConfig {
  int64_t tokens = 36;  // without the mask
  int64_t length = 512;
  int64_t hidden_size = 768;
  int64_t cond_dim = 256;
  int64_t n_blocks = 8;
  int64_t n_heads = 12;
  double dropout = 0.1;
  bool scale_by_sigma = true;  // absorbing graph only
  bool activation_checkpointing = false;
};

// Reduction of the loss over the positions of a sequence. The loss of a batch is the mean over its sequences.
enum class LossReduction {
  kMean,  // as in the fork protein_lig_sedd: nats per token
  kSum,   // as in the original: nats per sequence
};

// The section "loss".
struct LossConfig {
  LossReduction reduction = LossReduction::kMean;
};

enum class CurriculumRamp { kLinear, kExponential, kCosine };

// The section "curriculum": training starts with little noise, as in the fork protein_lig_sedd.
struct CurriculumConfig {
  bool enabled = false;
  int64_t preschool_time = 10'000;  // steps
  CurriculumRamp ramp = CurriculumRamp::kLinear;
  bool probabilistic = false;
  double bias_strength = 2;  // probabilistic only
};

enum class Predictor { kEuler, kAnalytic };

// The keys of the section "sampling" that the sampler uses.
struct SamplerConfig {
  Predictor predictor = Predictor::kEuler;
  int64_t steps = 100;
  bool noise_removal = true;  // a final step that removes the remaining noise, and every mask
};

// The section "sampling".
struct SamplingConfig {
  SamplerConfig sampler;
  int64_t samples = 0;         // sequences; 0: no sampling
  int64_t every_steps = 5000;  // training steps between two samplings; 0: only at the end
  int64_t batch_size = 16;     // per rank
  std::string directory{};     // of step-N.fasta
};

struct DiffusionConfig {
  ProteinDataConfig data;
  GraphConfig graph;
  NoiseConfig noise;
  SeddConfig model;
  LossConfig loss;
  CurriculumConfig curriculum;
  SamplingConfig sampling;
};

// Describes all sections of the task.
void describe(DiffusionConfig& config, Fields& root);

void describe(ProteinDataConfig& config, Fields& fields);
void describe(GraphConfig& config, Fields& fields);
void describe(NoiseConfig& config, Fields& fields);
// `min_tokens` is the size of the vocabulary of the data.
void describe(SeddConfig& config, const GraphConfig& graph, int64_t min_tokens, Fields& fields);
void describe(CurriculumConfig& config, Fields& fields);
void describe(SamplerConfig& config, Fields& fields);

}  // namespace oarlock::protein_diffusion
