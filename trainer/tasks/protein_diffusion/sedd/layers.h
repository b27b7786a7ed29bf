// The parts of the diffusion transformer (DDiT) of SEDD, with the parameter names of model/transformer.py of
// https://github.com/louaaron/Score-Entropy-Discrete-Diffusion. The order in which parameters are made is that file's
// too, so that a seed gives both the same initial weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

#include "trainer/nn/two_layers.h"
#include "trainer/tasks/protein_diffusion/sedd/rotary.h"

namespace oarlock {

// A linear layer whose weight and bias begin as zero.
torch::nn::Linear zero_linear(int64_t in, int64_t out);

// Layer normalisation with a weight and no bias, then adaptive scale and shift:
// layer_norm(x) * weight * (1 + scale) + shift, in float32. x is [n, length, width], scale and shift [n, 1, width].
class AdaptiveLayerNorm final : public torch::nn::Module {
 public:
  explicit AdaptiveLayerNorm(int64_t width);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale);

 private:
  at::Tensor weight_;
};

// embedding [states, width].
class TokenEmbedding final : public torch::nn::Module {
 public:
  TokenEmbedding(int64_t states, int64_t width);
  at::Tensor forward(const at::Tensor& tokens);

 private:
  at::Tensor embedding_;
};

// Noise sigma [n] as features [n, width]: cosines and sines of 128 frequencies, then an MLP.
class NoiseEmbedding final : public torch::nn::Module {
 public:
  explicit NoiseEmbedding(int64_t width);
  at::Tensor forward(const at::Tensor& sigma);

 private:
  std::shared_ptr<TwoLayers> mlp_;
};

struct BlockOptions {
  int64_t width = 768;
  int64_t heads = 12;
  int64_t condition = 256;  // width of the condition
  double dropout = 0.1;
};

// Attention in both directions and an MLP, each with adaptive layer normalisation before it and a gate behind it. x is
// [n, length, width], the condition [n, width of the condition].
class TransformerBlock final : public torch::nn::Module {
 public:
  explicit TransformerBlock(const BlockOptions& options);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& condition, const RotaryAngles& angles);

 private:
  at::Tensor attention(const at::Tensor& x, const RotaryAngles& angles);
  // skip + gate * dropout(x)
  at::Tensor gated(const at::Tensor& skip, const at::Tensor& x, const at::Tensor& gate) const;

  BlockOptions options_;
  std::shared_ptr<AdaptiveLayerNorm> norm1_;
  torch::nn::Linear attn_qkv_;
  torch::nn::Linear attn_out_;
  std::shared_ptr<AdaptiveLayerNorm> norm2_;
  std::shared_ptr<TwoLayers> mlp_;
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

}  // namespace oarlock
