#include "trainer/tasks/image_classification/small_networks.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "trainer/nn/checkpointed.h"
#include "trainer/nn/memory_format.h"

namespace oarlock {
namespace {

// fc1 ... fcN with ReLU between them, registered with the module they belong to.
class FullyConnected {
 public:
  FullyConnected(torch::nn::Module& owner, int64_t inputs, const std::vector<int64_t>& hidden, int64_t outputs) {
    std::vector<int64_t> widths = hidden;
    widths.push_back(outputs);
    for (const int64_t width : widths) {
      layers_.push_back(
          owner.register_module(fmt::format("fc{}", layers_.size() + 1), torch::nn::Linear(inputs, width)));
      inputs = width;
    }
  }

  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i]->forward(i == 0 ? x : at::relu(x));
    return x;
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

class Cnn final : public ImageModel {
 public:
  Cnn(const ImageModelConfig& config, const ImageShape& shape)
      : checkpoint_(config.activation_checkpointing),
        conv1_(register_conv("conv1", shape.channels, config.channels[0])),
        conv2_(register_conv("conv2", config.channels[0], config.channels[1])),
        head_(*this, config.channels[1] * (shape.height / 4) * (shape.width / 4), config.hidden, config.classes) {
    // The gradient of a one-channel weight comes with these strides, and DDP's buckets take theirs from the parameter.
    if (shape.channels == 1) conv1_->weight.set_data(channels_last(conv1_->weight.detach()));
  }

  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor x = run_stage(*conv2_, run_stage(*conv1_, channels_last(images)));
    return head_.forward(x.flatten(1));
  }

 private:
  at::Tensor run_stage(torch::nn::Conv2dImpl& conv, const at::Tensor& x) const {
    // Pooling first leaves ReLU a quarter of the work; the result is the same.
    const auto stage = [&conv](const at::Tensor& in) { return at::relu(at::max_pool2d(conv.forward(in), 2)); };
    return checkpoint_ ? checkpointed(conv, stage, x, /*preserve_random_state=*/false) : stage(x);
  }

  torch::nn::Conv2d register_conv(const char* name, int64_t in, int64_t out) {
    return register_module(name, torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)));
  }

  bool checkpoint_;
  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  FullyConnected head_;
};

class Mlp final : public ImageModel {
 public:
  Mlp(const ImageModelConfig& config, const ImageShape& shape)
      : layers_(*this, shape.channels * shape.height * shape.width, config.hidden, config.classes) {}

  at::Tensor forward(const at::Tensor& images) override { return layers_.forward(images.flatten(1)); }

 private:
  FullyConnected layers_;
};

}  // namespace

std::shared_ptr<ImageModel> make_cnn(const ImageModelConfig& config, const ImageShape& shape) {
  return std::make_shared<Cnn>(config, shape);
}

std::shared_ptr<ImageModel> make_mlp(const ImageModelConfig& config, const ImageShape& shape) {
  return std::make_shared<Mlp>(config, shape);
}

}  // namespace oarlock
