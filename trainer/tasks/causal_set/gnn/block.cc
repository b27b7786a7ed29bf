#include "trainer/tasks/causal_set/gnn/block.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <fmt/format.h>

namespace oarlock {
namespace {

constexpr double kMaxWidth = 65536;

}  // namespace

void describe(BlockConfig& config, Fields& fields) {
  describe(config.convolution, fields);
  fields.field("out", config.out, from_to(1, kMaxWidth), "features of a node behind the block");
  fields.choice<Normalizer>("norm", config.normalizer,
                            {{"batch_norm", Normalizer::kBatchNorm}, {"none", Normalizer::kNone}},
                            "what follows the convolution");
  fields.choice<Activation>("activation", config.activation,
                            {{"relu", Activation::kRelu},
                             {"elu", Activation::kElu},
                             {"gelu", Activation::kGelu},
                             {"silu", Activation::kSilu},
                             {"tanh", Activation::kTanh},
                             {"identity", Activation::kIdentity}},
                            "what follows the normalisation");
  fields.field("skip", config.skip,
               "whether the block's input is added, through a linear layer without bias where the widths differ");
  fields.field("dropout", config.dropout, from_below(0, 1), "at the end of the block");
  const ConvolutionConfig& convolution = config.convolution;
  if (convolution.kind == ConvolutionKind::kGat && convolution.concat && config.out % convolution.heads != 0)
    fields.problem("out",
                   fmt::format("{} is not a multiple of heads ({}), which are concatenated; or set concat: false",
                               config.out, convolution.heads));
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kRelu:
      return x.relu();
    case Activation::kElu:
      return at::elu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kTanh:
      return x.tanh();
    case Activation::kIdentity:
      return x;
  }
  return {};
}

GraphBlock::GraphBlock(const BlockConfig& config, int64_t in) : config_(config) {
  if (config.normalizer == Normalizer::kBatchNorm) normalizer_ = register_module("normalizer", BatchNorm1d(config.out));
  conv_ = register_module("conv", make_convolution(config.convolution, in, config.out));
  if (config.skip && in != config.out) {
    const auto skip = register_module("skip", std::make_shared<torch::nn::Module>());
    projection_ =
        skip->register_module("proj", torch::nn::Linear(torch::nn::LinearOptions(in, config.out).bias(false)));
  }
}

at::Tensor GraphBlock::forward(const at::Tensor& x, const GraphEdges& edges) {
  at::Tensor out = conv_->forward(x, edges);
  if (normalizer_) out = normalizer_->forward(out);
  out = activate(config_.activation, out);
  if (config_.skip) out = out + (projection_ ? projection_->forward(x) : x);
  return at::dropout(out, config_.dropout, is_training());
}

}  // namespace oarlock
