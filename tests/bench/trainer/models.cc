#include "tests/bench/trainer/models.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "tests/bench/trainer/sedd.h"

#include "workloads/image_classification/model.h"

namespace oarlock::bench {
namespace {

namespace nn = torch::nn;

constexpr int64_t kSmallWidth = 64;
constexpr int64_t kSmallDepth = 32;
constexpr int64_t kMlpInputs = 1024;
constexpr int64_t kClasses = 10;

class Classifier : public Model {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  at::Tensor loss(const at::Tensor& input, const at::Tensor& label) final {
    return nn::functional::cross_entropy(forward(input), label);
  }
};

class Small final : public Classifier {
 public:
  Small() {
    for (int64_t i = 0; i < kSmallDepth; ++i) layers_->push_back(nn::Linear(kSmallWidth, kSmallWidth));
    register_module("layers", layers_);
  }
  at::Tensor forward(const at::Tensor& x) override { return layers_->forward(x); }

 private:
  nn::Sequential layers_;
};

class Mlp final : public Classifier {
 public:
  Mlp()
      : fc1_(register_module("fc1", nn::Linear(kMlpInputs, 2048))),
        fc2_(register_module("fc2", nn::Linear(2048, 2048))),
        fc3_(register_module("fc3", nn::Linear(2048, 1024))),
        fc4_(register_module("fc4", nn::Linear(1024, kClasses))) {}
  at::Tensor forward(const at::Tensor& x) override { return fc4_(at::relu(fc3_(at::relu(fc2_(at::relu(fc1_(x))))))); }

 private:
  nn::Linear fc1_, fc2_, fc3_, fc4_;
};

class ResnetLike final : public Classifier {
 public:
  ResnetLike()
      : model_(
            register_module("model", image_classification::make_resnet_like(/*channels=*/3, /*width=*/64, kClasses))) {}
  at::Tensor forward(const at::Tensor& x) override { return model_->forward(x); }

 private:
  std::shared_ptr<image_classification::ImageModel> model_;
};

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, bool bias) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(bias));
}

class Cnn final : public Classifier {
 public:
  Cnn()
      : conv1_(register_module("conv1", conv(3, 32, 3, 1, true))),
        conv2_(register_module("conv2", conv(32, 64, 3, 1, true))),
        fc1_(register_module("fc1", nn::Linear(64 * 8 * 8, 256))),
        fc2_(register_module("fc2", nn::Linear(256, kClasses))) {}
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = at::max_pool2d(at::relu(conv1_(x)), 2);
    y = at::max_pool2d(at::relu(conv2_(y)), 2);
    return fc2_(at::relu(fc1_(y.flatten(1))));
  }

 private:
  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_;
};

class BasicBlock final : public Classifier {
 public:
  BasicBlock(int64_t in, int64_t out, int64_t stride)
      : conv1_(register_module("conv1", conv(in, out, 3, stride, false))),
        bn1_(register_module("bn1", nn::BatchNorm2d(out))),
        conv2_(register_module("conv2", conv(out, out, 3, 1, false))),
        bn2_(register_module("bn2", nn::BatchNorm2d(out))) {
    if (stride == 1 && in == out) return;
    shortcut_ = register_module("shortcut", nn::Sequential(conv(in, out, 1, stride, false), nn::BatchNorm2d(out)));
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor y = bn2_(conv2_(at::relu(bn1_(conv1_(x)))));
    return at::relu(y + (shortcut_.is_empty() ? x : shortcut_->forward(x)));
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Sequential shortcut_{nullptr};
};

class Resnet final : public Classifier {
 public:
  Resnet()
      : conv1_(register_module("conv1", conv(3, 64, 3, 1, false))), bn1_(register_module("bn1", nn::BatchNorm2d(64))) {
    int64_t in = 64;
    for (const int64_t width : {64, 128, 256, 512}) {
      blocks_.push_back(std::make_shared<BasicBlock>(in, width, width == 64 ? 1 : 2));
      blocks_.push_back(std::make_shared<BasicBlock>(width, width, 1));
      in = width;
    }
    for (size_t i = 0; i < blocks_.size(); ++i) register_module("block" + std::to_string(i), blocks_[i]);
    fc_ = register_module("fc", nn::Linear(512, kClasses));
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = at::relu(bn1_(conv1_(x)));
    for (const auto& block : blocks_) y = block->forward(y);
    return fc_(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  std::vector<std::shared_ptr<BasicBlock>> blocks_;
  nn::Linear fc_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_model(ModelKind kind) {
  switch (kind) {
    case ModelKind::kSmall:
      return std::make_shared<Small>();
    case ModelKind::kMlp:
      return std::make_shared<Mlp>();
    case ModelKind::kCnn:
      return std::make_shared<Cnn>();
    case ModelKind::kResnetLike:
      return std::make_shared<ResnetLike>();
    case ModelKind::kResnet:
      return std::make_shared<Resnet>();
    case ModelKind::kSedd:
      return make_sedd();
  }
  return nullptr;
}

std::vector<int64_t> input_shape(ModelKind kind) {
  switch (kind) {
    case ModelKind::kSmall:
      return {kSmallWidth};
    case ModelKind::kMlp:
      return {kMlpInputs};
    case ModelKind::kCnn:
    case ModelKind::kResnetLike:
    case ModelKind::kResnet:
      return {3, 32, 32};
    case ModelKind::kSedd:
      return {1 + kSeddLength};
  }
  return {};
}

std::vector<int64_t> label_shape(ModelKind kind) {
  return kind == ModelKind::kSedd ? std::vector<int64_t>{kSeddLength} : std::vector<int64_t>{};
}

int64_t outputs(ModelKind kind) {
  if (kind == ModelKind::kSedd) return kSeddTokens;
  return kind == ModelKind::kSmall ? kSmallWidth : kClasses;
}

}  // namespace oarlock::bench
