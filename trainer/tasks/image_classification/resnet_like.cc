#include "trainer/tasks/image_classification/resnet_like.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/linear.h>

#include "trainer/nn/batch_norm.h"
#include "trainer/nn/memory_format.h"

namespace oarlock {
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
    x = at::max_pool2d(x, 3, 2, 1).relu_();  // a quarter of the work of ReLU first; the result is the same
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

}  // namespace oarlock
