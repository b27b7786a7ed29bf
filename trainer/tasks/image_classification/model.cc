#include "trainer/tasks/image_classification/model.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>

#include "trainer/nn/activation_checkpoint.h"
#include "trainer/nn/module_tensors.h"
#include "trainer/tasks/image_classification/resnet.h"

namespace oarlock::image_classification {

torch::nn::Conv2d plain_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

std::shared_ptr<ImageModel> make_image_model(const ImageModelConfig& config, const ImageShape& shape) {
  const ResnetOptions resnet{shape.channels, config.width, config.classes, config.stem};
  switch (config.kind) {
    case ImageModelKind::kCnn:
      return make_cnn(config, shape);
    case ImageModelKind::kMlp:
      return make_mlp(config, shape);
    case ImageModelKind::kResnetLike:
      return make_resnet_like(shape.channels, config.width, config.classes);
    case ImageModelKind::kResnet18:
      return make_resnet18(resnet);
    case ImageModelKind::kResnet50:
      return make_resnet50(resnet);
    case ImageModelKind::kTorchScript:
      break;
  }
  throw std::logic_error("make_image_model: a TorchScript model is loaded, not created");
}

namespace {

// fc1 ... fcN with ReLU between them, registered as children of `owner`.
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
    // The gradient of a one-channel weight has these strides, and DDP's buckets take theirs from the parameter.
    if (shape.channels == 1) conv1_->weight.set_data(channels_last(conv1_->weight.detach()));
  }

  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor x = run_stage(*conv2_, run_stage(*conv1_, channels_last(images)));
    return head_.forward(x.flatten(1));
  }

 private:
  at::Tensor run_stage(torch::nn::Conv2dImpl& conv, const at::Tensor& x) const {
    // Pooling before ReLU gives the same result with a quarter of the work for ReLU.
    const auto stage = [&conv](const at::Tensor& in) { return at::relu(at::max_pool2d(conv.forward(in), 2)); };
    return checkpoint_ ? checkpoint_activations(conv, stage, x, /*preserve_random_state=*/false) : stage(x);
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

}  // namespace oarlock::image_classification
