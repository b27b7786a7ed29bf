// The score model of SEDD: a diffusion transformer (DDiT) that returns the logarithms of the ratios p(y) / p(x) of a
// noised sequence. Source: model/transformer.py and model/rotary.py of
// https://github.com/louaaron/Score-Entropy-Discrete-Diffusion. Parameters and buffers have the names, the order, the
// shapes and, for the same seed, the initial values of the original.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/nn/mlp.h"
#include "workloads/protein_diffusion/config.h"

namespace oarlock::protein_diffusion {

// Cosines and sines of position * frequency, float [length, 1, 1, features / 2].
struct RotaryAngles {
  at::Tensor cos;
  at::Tensor sin;
};

// Rotary position embedding (Su et al. 2021). Buffer: inv_freq [features / 2].
class Rotary final : public torch::nn::Module {
 public:
  // `features` is the width of an attention head, an even number.
  explicit Rotary(int64_t features);

  // Returns the angles of positions 0 .. length - 1. They are cached for the next call.
  const RotaryAngles& angles(int64_t length);

 private:
  at::Tensor inverse_frequencies_;
  RotaryAngles angles_;
};

// Rotates [n, length, ..., features] by the angles of each position, in the tensor's own type. The two halves of the
// features are the coordinates that are rotated.
at::Tensor apply_rotary(const at::Tensor& features, const RotaryAngles& angles);

// A linear layer whose weight and bias are initialized with zeros.
torch::nn::Linear zero_linear(int64_t in, int64_t out);

// Layer normalization with a weight and no bias, followed by adaptive scale and shift:
// layer_norm(x) * weight * (1 + scale) + shift, in float32. x is [n, length, width], scale and shift [n, 1, width].
class AdaptiveLayerNorm final : public torch::nn::Module {
 public:
  explicit AdaptiveLayerNorm(int64_t width);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale);

 private:
  at::Tensor weight_;
};

// Parameter: embedding [states, width].
class TokenEmbedding final : public torch::nn::Module {
 public:
  TokenEmbedding(int64_t states, int64_t width);
  at::Tensor forward(const at::Tensor& tokens);

 private:
  at::Tensor embedding_;
};

// Embeds the noise: sigma [n] -> [n, width], by cosines and sines of 128 frequencies and an MLP.
class NoiseEmbedding final : public torch::nn::Module {
 public:
  explicit NoiseEmbedding(int64_t width);
  at::Tensor forward(const at::Tensor& sigma);

 private:
  std::shared_ptr<Mlp> mlp_;
};

struct BlockOptions {
  int64_t width = 768;
  int64_t heads = 12;
  int64_t condition = 256;  // width of the condition
  double dropout = 0.1;
};

// Bidirectional attention and an MLP, each preceded by adaptive layer normalization and followed by a gate.
class TransformerBlock final : public torch::nn::Module {
 public:
  explicit TransformerBlock(const BlockOptions& options);
  // x [n, length, width], condition [n, width of the condition] -> [n, length, width].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& condition, const RotaryAngles& angles);

 private:
  at::Tensor attention(const at::Tensor& x, const RotaryAngles& angles);
  // skip + gate * dropout(x)
  at::Tensor add_gated(const at::Tensor& skip, const at::Tensor& x, const at::Tensor& gate) const;

  BlockOptions options_;
  std::shared_ptr<AdaptiveLayerNorm> norm1_;
  torch::nn::Linear attn_qkv_;
  torch::nn::Linear attn_out_;
  std::shared_ptr<AdaptiveLayerNorm> norm2_;
  std::shared_ptr<Mlp> mlp_;
  torch::nn::Linear modulation_;
};

// [n, length, width] -> [n, length, states].
class OutputLayer final : public torch::nn::Module {
 public:
  OutputLayer(int64_t width, int64_t states, int64_t condition);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& condition);

 private:
  std::shared_ptr<AdaptiveLayerNorm> norm_;
  torch::nn::Linear linear_;
  torch::nn::Linear modulation_;
};

class SeddModel final : public torch::nn::Module {
 public:
  // `states` is the number of states of the graph. Initialized by torch's default generator.
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

}  // namespace oarlock::protein_diffusion
