#include "workloads/image_classification/model.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "ddp/batch_norm.h"
#include "trainer/nn/activation_checkpoint.h"
#include "trainer/nn/module_tensors.h"

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

namespace {

// The shortcut of a block that changes the shape: 1x1 convolution and batch norm, children 0 and 1 of an nn.Sequential.
class DownsampleImpl final : public torch::nn::Module {
 public:
  DownsampleImpl(int64_t in, int64_t out, int64_t stride)
      : conv_(register_module("0", plain_convolution(in, out, 1, stride))),
        bn_(register_module("1", BatchNorm2d(out))) {}
  at::Tensor forward(const at::Tensor& x) { return bn_->forward(conv_->forward(x)); }

 private:
  torch::nn::Conv2d conv_;
  BatchNorm2d bn_;
};
TORCH_MODULE(Downsample);

// relu(residual(x) + shortcut(x))
class Block : public torch::nn::Module {
 public:
  virtual at::Tensor residual(const at::Tensor& x) = 0;

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = residual(x);
    return y.add_(downsample_ ? downsample_->forward(x) : x).relu_();
  }

 protected:
  // Must be called after all other children are registered: their order is the order of the parameters.
  void register_shortcut(const Downsample& downsample) {
    if (downsample) downsample_ = register_module("downsample", downsample);
  }

 private:
  Downsample downsample_{nullptr};
};

class BasicBlock final : public Block {
 public:
  static constexpr int64_t kExpansion = 1;

  BasicBlock(int64_t in, int64_t width, int64_t stride, const Downsample& downsample)
      : conv1_(register_module("conv1", plain_convolution(in, width, 3, stride))),
        bn1_(register_module("bn1", BatchNorm2d(width))),
        conv2_(register_module("conv2", plain_convolution(width, width, 3, 1))),
        bn2_(register_module("bn2", BatchNorm2d(width))) {
    register_shortcut(downsample);
  }

  at::Tensor residual(const at::Tensor& x) override {
    const at::Tensor y = bn1_->forward(conv1_->forward(x)).relu_();
    return bn2_->forward(conv2_->forward(y));
  }

 private:
  torch::nn::Conv2d conv1_;
  BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  BatchNorm2d bn2_;
};

class Bottleneck final : public Block {
 public:
  static constexpr int64_t kExpansion = 4;

  Bottleneck(int64_t in, int64_t width, int64_t stride, const Downsample& downsample)
      : conv1_(register_module("conv1", plain_convolution(in, width, 1, 1))),
        bn1_(register_module("bn1", BatchNorm2d(width))),
        conv2_(register_module("conv2", plain_convolution(width, width, 3, stride))),
        bn2_(register_module("bn2", BatchNorm2d(width))),
        conv3_(register_module("conv3", plain_convolution(width, kExpansion * width, 1, 1))),
        bn3_(register_module("bn3", BatchNorm2d(kExpansion * width))) {
    register_shortcut(downsample);
  }

  at::Tensor residual(const at::Tensor& x) override {
    at::Tensor y = bn1_->forward(conv1_->forward(x)).relu_();
    y = bn2_->forward(conv2_->forward(y)).relu_();
    return bn3_->forward(conv3_->forward(y));
  }

 private:
  torch::nn::Conv2d conv1_;
  BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  BatchNorm2d bn2_;
  torch::nn::Conv2d conv3_;
  BatchNorm2d bn3_;
};

// An nn.Sequential of blocks, of which the first one has the stride.
class StageImpl final : public torch::nn::Module {
 public:
  template <typename BlockType>
  void build(int64_t in, int64_t width, int64_t stride, int64_t blocks) {
    const int64_t out = width * BlockType::kExpansion;
    Downsample downsample{
        nullptr};  // created before its block, as in torchvision, so that the random numbers are the same
    if (stride != 1 || in != out) downsample = Downsample(in, out, stride);
    add(std::make_shared<BlockType>(in, width, stride, downsample));
    while (static_cast<int64_t>(blocks_.size()) < blocks) {
      add(std::make_shared<BlockType>(out, width, 1, Downsample{nullptr}));
    }
  }

  at::Tensor forward(at::Tensor x) {
    for (const auto& block : blocks_) x = block->forward(x);
    return x;
  }

 private:
  void add(const std::shared_ptr<Block>& block) {
    blocks_.push_back(register_module(fmt::format("{}", blocks_.size()), block));
  }
  std::vector<std::shared_ptr<Block>> blocks_;
};
TORCH_MODULE(Stage);

class Resnet final : public ImageModel {
 public:
  Resnet(const ResnetOptions& options, bool bottlenecks, const std::array<int64_t, 4>& depths)
      : pools_(options.stem == ResnetStem::kImagenet),
        conv1_(register_module("conv1", pools_ ? plain_convolution(options.channels, options.width, 7, 2)
                                               : plain_convolution(options.channels, options.width, 3, 1))),
        bn1_(register_module("bn1", BatchNorm2d(options.width))) {
    int64_t in = options.width;
    for (size_t i = 0; i < depths.size(); ++i) {
      const int64_t width = options.width << i;
      Stage stage;
      if (bottlenecks) {
        stage->build<Bottleneck>(in, width, i == 0 ? 1 : 2, depths[i]);
      } else {
        stage->build<BasicBlock>(in, width, i == 0 ? 1 : 2, depths[i]);
      }
      stages_.push_back(register_module(fmt::format("layer{}", i + 1), stage));
      in = width * (bottlenecks ? Bottleneck::kExpansion : BasicBlock::kExpansion);
    }
    fc_ = register_module("fc", torch::nn::Linear(in, options.classes));
    initialize_convolutions();
    to_channels_last(*this);
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = bn1_->forward(conv1_->forward(channels_last(images)));
    x = (pools_ ? at::max_pool2d(x, 3, 2, 1) : x).relu_();  // pooling first gives the same result with less work
    for (Stage& stage : stages_) x = stage->forward(x);
    return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  void initialize_convolutions() {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<torch::nn::Conv2d>())
        torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }

  bool pools_;
  torch::nn::Conv2d conv1_;
  BatchNorm2d bn1_;
  std::vector<Stage> stages_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_resnet18(const ResnetOptions& options) {
  return std::make_shared<Resnet>(options, /*bottlenecks=*/false, std::array<int64_t, 4>{2, 2, 2, 2});
}

std::shared_ptr<ImageModel> make_resnet50(const ResnetOptions& options) {
  return std::make_shared<Resnet>(options, /*bottlenecks=*/true, std::array<int64_t, 4>{3, 4, 6, 3});
}

namespace {

class LayerImpl final : public torch::nn::Module {
 public:
  LayerImpl(int64_t in, int64_t out, int64_t stride)
      : conv1_(register_module("0", plain_convolution(in, out, 3, stride))),
        bn1_(register_module("1", BatchNorm2d(out))),
        conv2_(register_module("3", plain_convolution(out, out, 3, 1))),
        bn2_(register_module("4", BatchNorm2d(out))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = bn1_->forward(conv1_->forward(x)).relu_();
    return bn2_->forward(conv2_->forward(y)).relu_();
  }

 private:
  torch::nn::Conv2d conv1_;
  BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  BatchNorm2d bn2_;
};
TORCH_MODULE(Layer);

class ResnetLike final : public ImageModel {
 public:
  ResnetLike(int64_t channels, int64_t width, int64_t classes)
      : conv1_(register_module("conv1", plain_convolution(channels, width, 7, 2))),
        bn1_(register_module("bn1", BatchNorm2d(width))),
        layer1_(register_module("layer1", Layer(width, width, 1))),
        layer2_(register_module("layer2", Layer(width, 2 * width, 2))),
        layer3_(register_module("layer3", Layer(2 * width, 4 * width, 2))),
        fc_(register_module("fc", torch::nn::Linear(4 * width, classes))) {
    to_channels_last(*this);
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = bn1_->forward(conv1_->forward(channels_last(images)));
    x = at::max_pool2d(x, 3, 2, 1).relu_();  // the same result as ReLU first, with a quarter of its work
    x = layer3_->forward(layer2_->forward(layer1_->forward(x)));
    return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  torch::nn::Conv2d conv1_;
  BatchNorm2d bn1_;
  Layer layer1_;
  Layer layer2_;
  Layer layer3_;
  torch::nn::Linear fc_;
};

}  // namespace

std::shared_ptr<ImageModel> make_resnet_like(int64_t channels, int64_t width, int64_t classes) {
  return std::make_shared<ResnetLike>(channels, width, classes);
}

}  // namespace oarlock::image_classification
