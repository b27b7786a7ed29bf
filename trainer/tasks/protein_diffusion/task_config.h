// The sections of a protein_diffusion configuration, but for "data". Where the Python originals have a name for a key,
// it is theirs.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/fields.h"
#include "trainer/tasks/protein_diffusion/sedd/curriculum.h"
#include "trainer/tasks/protein_diffusion/sedd/graph.h"
#include "trainer/tasks/protein_diffusion/sedd/model.h"
#include "trainer/tasks/protein_diffusion/sedd/noise.h"
#include "trainer/tasks/protein_diffusion/sedd/sampler.h"

namespace oarlock {

// Over the positions of a sequence; the loss is the mean of it over sequences.
enum class LossReduction {
  kMean,  // as the fork protein_lig_sedd: nats per token
  kSum,   // as the original: nats per sequence
};

// The section "loss".
struct LossConfig {
  LossReduction reduction = LossReduction::kMean;
};

// The section "sampling".
struct SamplingConfig {
  SamplerConfig sampler;
  int64_t samples = 0;         // sequences; 0: none are sampled
  int64_t every_steps = 5000;  // of training; 0: only at the end
  int64_t batch_size = 16;     // of a rank
  std::string folder{};        // of step-N.fasta
};

struct DiffusionConfig {
  GraphConfig graph;
  NoiseConfig noise;
  SeddConfig model;
  LossConfig loss;
  CurriculumConfig curriculum;
  SamplingConfig sampling;
};

void describe(DiffusionConfig& config, Fields& root);

}  // namespace oarlock
