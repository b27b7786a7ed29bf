#include "trainer/tasks/protein_diffusion/sedd/model.h"

#include <ATen/ops/expm1.h>
#include <ATen/ops/log.h>
#include <ATen/ops/silu.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>

#include "trainer/nn/checkpointed.h"

namespace oarlock {
namespace {

constexpr int64_t kMaxWidth = 65536;
constexpr int64_t kMaxLength = 1'000'000;

}  // namespace

void describe(SeddConfig& config, const GraphConfig& graph, int64_t least_tokens, Fields& fields) {
  const bool absorbs = graph.kind == GraphKind::kAbsorb;
  fields.field("tokens", config.tokens, from_to(static_cast<double>(least_tokens), kMaxWidth),
               "size of the vocabulary, without the mask of the absorbing graph");
  fields.field("length", config.length, from_to(1, kMaxLength),
               "tokens of a sequence: longer ones are cut, shorter ones padded");
  fields.field("hidden_size", config.hidden_size, from_to(2, kMaxWidth), "width of the transformer");
  fields.field("cond_dim", config.cond_dim, from_to(1, kMaxWidth), "width of what the noise level becomes");
  fields.field("n_blocks", config.n_blocks, from_to(1, 1000), "transformer blocks");
  fields.field("n_heads", config.n_heads, from_to(1, kMaxWidth), "attention heads of a block");
  fields.field("dropout", config.dropout, from_below(0, 1), "after attention and MLP of each block");
  if (!absorbs && !fields.given("scale_by_sigma")) config.scale_by_sigma = false;
  fields.field("scale_by_sigma", config.scale_by_sigma,
               "begin at the ratios of tokens that are all equally likely; absorbing graph only");
  fields.field("activation_checkpointing", config.activation_checkpointing,
               "run each block again in backward instead of keeping what it gave: less memory, more time");
  fields.only_where("scale_by_sigma", absorbs, "needs graph.type: absorb");
  if (config.hidden_size % (2 * config.n_heads) != 0) {
    fields.problem("hidden_size", fmt::format("{} is not a multiple of 2 * n_heads ({}): heads have an even width",
                                              config.hidden_size, 2 * config.n_heads));
  }
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
      x = checkpointed(*block, run, {x, condition})[0];
    } else {
      x = block->forward(x, condition, angles);
    }
  }
  // Ratios are exponentiated and subtracted from each other: never in a lower precision.
  at::Tensor log_score = output_layer_->forward(x, condition).to(at::kFloat);
  if (config_.scale_by_sigma) {
    const auto tokens_of_data = static_cast<double>(log_score.size(-1) - 1);
    log_score = log_score - (at::expm1(sigma).log() + std::log(tokens_of_data)).view({-1, 1, 1});
  }
  return log_score.scatter(-1, tokens.unsqueeze(-1), 0);
}

}  // namespace oarlock
