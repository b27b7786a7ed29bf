// The score model of SEDD: a transformer that gives the logarithms of the ratios p(y) / p(x) of a noised sequence.
// Source: model/transformer.py of https://github.com/louaaron/Score-Entropy-Discrete-Diffusion; parameters and buffers
// have its names, order, shapes and initial values.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/config/fields.h"
#include "trainer/tasks/protein_diffusion/sedd/graph.h"
#include "trainer/tasks/protein_diffusion/sedd/layers.h"

namespace oarlock {

// The section "model". The defaults have 66,724,133 parameters with the absorbing graph.
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

// `least_tokens`: those of the data.
void describe(SeddConfig& config, const GraphConfig& graph, int64_t least_tokens, Fields& fields);

class SeddModel final : public torch::nn::Module {
 public:
  // `states`: of the graph. Initialised by torch's default generator.
  SeddModel(const SeddConfig& config, int64_t states);

  // tokens int64 [n, length], sigma float [n] -> float32 [n, length, states], 0 at the tokens themselves.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& sigma);

 private:
  SeddConfig config_;
  std::shared_ptr<TokenEmbedding> vocab_embed_;
  std::shared_ptr<NoiseEmbedding> sigma_map_;
  std::shared_ptr<Rotary> rotary_emb_;
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
  std::shared_ptr<OutputLayer> output_layer_;
};

}  // namespace oarlock
