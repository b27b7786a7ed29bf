#include "trainer/tasks/image_classification/resnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <vector>

#include "trainer/nn/batch_norm.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock::image_classification {

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
