#include "workloads/protein_diffusion/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/log.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>

#include "trainer/nn/activation_checkpoint.h"

namespace oarlock::protein_diffusion {

namespace {

constexpr double kBase = 10'000;

}  // namespace

Rotary::Rotary(int64_t features) {
  const at::Tensor exponents = at::arange(0, features, 2, at::kFloat) / static_cast<double>(features);
  inverse_frequencies_ = register_buffer("inv_freq", at::pow(kBase, exponents).reciprocal());
}

const RotaryAngles& Rotary::angles(int64_t length) {
  const bool known =
      angles_.cos.defined() && angles_.cos.size(0) == length && angles_.cos.device() == inverse_frequencies_.device();
  if (!known) {
    const at::Tensor positions = at::arange(length, inverse_frequencies_.options());
    const at::Tensor angle = at::outer(positions, inverse_frequencies_).view({length, 1, 1, -1});
    angles_ = {at::cos(angle), at::sin(angle)};
  }
  return angles_;
}

at::Tensor apply_rotary(const at::Tensor& features, const RotaryAngles& angles) {
  const at::Tensor cos = angles.cos.to(features.scalar_type());
  const at::Tensor sin = angles.sin.to(features.scalar_type());
  const std::vector<at::Tensor> halves = features.chunk(2, -1);
  return at::cat({at::addcmul(halves[0] * cos, halves[1], sin, -1), at::addcmul(halves[1] * cos, halves[0], sin)}, -1);
}

namespace {

constexpr int64_t kFrequencies = 128;
constexpr double kMaxPeriod = 10'000;
constexpr int64_t kMlpRatio = 4;

torch::nn::Linear linear_without_bias(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

at::Tensor tanh_gelu(const at::Tensor& x) { return at::gelu(x, "tanh"); }

// Splits a modulation [n, parts * width] into parts of [n, 1, width].
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
  // Weight and scale are multiplied first, because they have the size of a single position.
  return at::addcmul(shift, normal, weight_ * (scale + 1));
}

TokenEmbedding::TokenEmbedding(int64_t states, int64_t width)
    : embedding_(register_parameter("embedding", at::empty({states, width}))) {
  torch::nn::init::kaiming_uniform_(embedding_, std::sqrt(5.0));
}

at::Tensor TokenEmbedding::forward(const at::Tensor& tokens) { return at::embedding(embedding_, tokens); }

NoiseEmbedding::NoiseEmbedding(int64_t width)
    : mlp_(register_module("mlp", std::make_shared<Mlp>(2 * kFrequencies, width, width, at::silu))) {}

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
      mlp_(register_module("mlp",
                           std::make_shared<Mlp>(options.width, kMlpRatio * options.width, options.width, tanh_gelu))),
      modulation_(register_module("adaLN_modulation", zero_linear(options.condition, 6 * options.width))) {}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const at::Tensor& condition, const RotaryAngles& angles) {
  const std::vector<at::Tensor> part = parts_of(modulation_->forward(condition), 6);
  const at::Tensor attended =
      add_gated(x, attn_out_->forward(attention(norm1_->forward(x, part[0], part[1]), angles)), part[2]);
  return add_gated(attended, mlp_->forward(norm2_->forward(attended, part[3], part[4])), part[5]);
}

at::Tensor TransformerBlock::attention(const at::Tensor& x, const RotaryAngles& angles) {
  const int64_t n = x.size(0);
  const int64_t length = x.size(1);
  const at::Tensor qkv = attn_qkv_->forward(x).view({n, length, 3, options_.heads, options_.width / options_.heads});
  const at::Tensor rotated_qk = apply_rotary(qkv.slice(2, 0, 2), angles);
  const auto by_head = [](const at::Tensor& features, int64_t which) {
    return features.select(2, which).transpose(1, 2);  // [n, heads, length, features of a head]
  };
  const at::Tensor out =
      at::scaled_dot_product_attention(by_head(rotated_qk, 0), by_head(rotated_qk, 1), by_head(qkv, 2));
  return out.transpose(1, 2).reshape({n, length, options_.width});
}

at::Tensor TransformerBlock::add_gated(const at::Tensor& skip, const at::Tensor& x, const at::Tensor& gate) const {
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

SeddModel::SeddModel(const SeddConfig& config, int64_t states)
    : config_(config),
      vocab_embed_(register_module("vocab_embed", std::make_shared<TokenEmbedding>(states, config.hidden_size))),
      sigma_map_(register_module("sigma_map", std::make_shared<NoiseEmbedding>(config.cond_dim))),
      rotary_emb_(register_module("rotary_emb", std::make_shared<Rotary>(config.hidden_size / config.n_heads))) {
  torch::nn::ModuleList blocks = register_module("blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.n_blocks; ++i) {
    blocks_.push_back(std::make_shared<TransformerBlock>(BlockOptions{.width = config.hidden_size,
                                                                      .heads = config.n_heads,
                                                                      .condition = config.cond_dim,
                                                                      .dropout = config.dropout}));
    blocks->push_back(blocks_.back());
  }
  output_layer_ =
      register_module("output_layer", std::make_shared<OutputLayer>(config.hidden_size, states, config.cond_dim));
}

at::Tensor SeddModel::forward(const at::Tensor& tokens, const at::Tensor& sigma) {
  at::Tensor x = vocab_embed_->forward(tokens);
  const at::Tensor condition = at::silu(sigma_map_->forward(sigma));
  const RotaryAngles& angles = rotary_emb_->angles(tokens.size(1));
  for (const auto& block : blocks_) {
    if (config_.activation_checkpointing) {
      const auto run = [&block = *block, angles](const std::vector<at::Tensor>& inputs) {
        return std::vector<at::Tensor>{block.forward(inputs[0], inputs[1], angles)};
      };
      x = checkpoint_activations(*block, run, {x, condition})[0];
    } else {
      x = block->forward(x, condition, angles);
    }
  }
  // Ratios are exponentiated and subtracted from each other, which needs float32.
  at::Tensor log_score = output_layer_->forward(x, condition).to(at::kFloat);
  if (config_.scale_by_sigma) {
    const auto tokens_of_data = static_cast<double>(log_score.size(-1) - 1);
    log_score = log_score - (at::expm1(sigma).log() + std::log(tokens_of_data)).view({-1, 1, 1});
  }
  return log_score.scatter(-1, tokens.unsqueeze(-1), 0);
}

}  // namespace oarlock::protein_diffusion
