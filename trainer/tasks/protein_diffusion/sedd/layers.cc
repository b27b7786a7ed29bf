#include "trainer/tasks/protein_diffusion/sedd/layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <torch/nn/init.h>

#include <cmath>

namespace oarlock {
namespace {

constexpr int64_t kFrequencies = 128;
constexpr double kMaxPeriod = 10'000;
constexpr int64_t kMlpRatio = 4;

torch::nn::Linear linear_without_bias(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

at::Tensor gelu_by_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

// The parts of a modulation [n, parts * width], each [n, 1, width].
std::vector<at::Tensor> parts_of(const at::Tensor& modulation, int64_t parts) {
  return modulation.unsqueeze(1).chunk(parts, 2);
}

}  // namespace

torch::nn::Linear zero_linear(int64_t in, int64_t out) {
  torch::nn::Linear linear(in, out);
  const at::NoGradGuard no_gradients;
  linear->weight.zero_();
  linear->bias.zero_();
  return linear;
}

AdaptiveLayerNorm::AdaptiveLayerNorm(int64_t width) : weight_(register_parameter("weight", at::ones({width}))) {}

at::Tensor AdaptiveLayerNorm::forward(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale) {
  const at::Tensor normal = at::layer_norm(x.to(at::kFloat), weight_.sizes());
  // Weight and scale are joined first: they are as long as one position.
  return at::addcmul(shift, normal, weight_ * (scale + 1));
}

TokenEmbedding::TokenEmbedding(int64_t states, int64_t width)
    : embedding_(register_parameter("embedding", at::empty({states, width}))) {
  torch::nn::init::kaiming_uniform_(embedding_, std::sqrt(5.0));
}

at::Tensor TokenEmbedding::forward(const at::Tensor& tokens) { return at::embedding(embedding_, tokens); }

NoiseEmbedding::NoiseEmbedding(int64_t width)
    : mlp_(register_module("mlp", std::make_shared<TwoLayers>(2 * kFrequencies, width, width, at::silu))) {}

at::Tensor NoiseEmbedding::forward(const at::Tensor& sigma) {
  const at::Tensor exponents = at::arange(kFrequencies, sigma.options()) * (-std::log(kMaxPeriod) / kFrequencies);
  const at::Tensor angles = sigma.unsqueeze(-1) * at::exp(exponents);
  return mlp_->forward(at::cat({angles.cos(), angles.sin()}, -1));
}

TransformerBlock::TransformerBlock(const BlockOptions& options)
    : options_(options),
      norm1_(register_module("norm1", std::make_shared<AdaptiveLayerNorm>(options.width))),
      attn_qkv_(register_module("attn_qkv", linear_without_bias(options.width, 3 * options.width))),
      attn_out_(register_module("attn_out", linear_without_bias(options.width, options.width))),
      norm2_(register_module("norm2", std::make_shared<AdaptiveLayerNorm>(options.width))),
      mlp_(register_module(
          "mlp", std::make_shared<TwoLayers>(options.width, kMlpRatio * options.width, options.width, gelu_by_tanh))),
      modulation_(register_module("adaLN_modulation", zero_linear(options.condition, 6 * options.width))) {}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const at::Tensor& condition, const RotaryAngles& angles) {
  const std::vector<at::Tensor> part = parts_of(modulation_->forward(condition), 6);
  const at::Tensor attended =
      gated(x, attn_out_->forward(attention(norm1_->forward(x, part[0], part[1]), angles)), part[2]);
  return gated(attended, mlp_->forward(norm2_->forward(attended, part[3], part[4])), part[5]);
}

at::Tensor TransformerBlock::attention(const at::Tensor& x, const RotaryAngles& angles) {
  const int64_t n = x.size(0);
  const int64_t length = x.size(1);
  const at::Tensor qkv = attn_qkv_->forward(x).view({n, length, 3, options_.heads, options_.width / options_.heads});
  const at::Tensor turned = rotated(qkv.slice(2, 0, 2), angles);
  const auto by_head = [](const at::Tensor& features, int64_t which) {
    return features.select(2, which).transpose(1, 2);  // [n, heads, length, features of a head]
  };
  const at::Tensor out = at::scaled_dot_product_attention(by_head(turned, 0), by_head(turned, 1), by_head(qkv, 2));
  return out.transpose(1, 2).reshape({n, length, options_.width});
}

at::Tensor TransformerBlock::gated(const at::Tensor& skip, const at::Tensor& x, const at::Tensor& gate) const {
  return at::addcmul(skip, gate, at::dropout(x, options_.dropout, is_training()));
}

OutputLayer::OutputLayer(int64_t width, int64_t states, int64_t condition)
    : norm_(register_module("norm_final", std::make_shared<AdaptiveLayerNorm>(width))),
      linear_(register_module("linear", zero_linear(width, states))),
      modulation_(register_module("adaLN_modulation", zero_linear(condition, 2 * width))) {}

at::Tensor OutputLayer::forward(const at::Tensor& x, const at::Tensor& condition) {
  const std::vector<at::Tensor> part = parts_of(modulation_->forward(condition), 2);
  return linear_->forward(norm_->forward(x, part[0], part[1]));
}

}  // namespace oarlock
