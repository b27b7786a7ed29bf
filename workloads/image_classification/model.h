// Image classifiers: a CNN, an MLP, ResNet-18 and ResNet-50 (He et al., 2016), and a similar network without residual
// additions. Their parameters have the names of the same modules in Python.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>
#include <memory>

#include "workloads/image_classification/config.h"
#include "workloads/image_classification/images.h"

namespace oarlock::image_classification {

class ImageModel : public torch::nn::Module {
 public:
  // [n, channels, height, width] -> logits [n, classes].
  virtual at::Tensor forward(const at::Tensor& images) = 0;
};

// Creates the model that the section "model" names, except for torchscript, which is a ScriptModel
// (ddp/script_model.h). Initialized by torch's default generator: a seed gives the same weights as in Python.
std::shared_ptr<ImageModel> make_image_model(const ImageModelConfig& config, const ImageShape& shape);

// conv1 and conv2 (3x3, padding 1, each followed by ReLU and 2x2 max pooling), then fc1 ... fcN with ReLU between them.
// Images must be at least 4x4.
std::shared_ptr<ImageModel> make_cnn(const ImageModelConfig& config, const ImageShape& shape);

// fc1 ... fcN with ReLU between them.
std::shared_ptr<ImageModel> make_mlp(const ImageModelConfig& config, const ImageShape& shape);

// A convolution without bias, to be followed by a batch norm. It keeps height and width, divided by the stride and
// rounded up.
torch::nn::Conv2d plain_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride);

struct ResnetOptions {
  int64_t channels = 3;  // of the images
  int64_t width = 64;    // channels of layer1's 3x3 convolutions; 64 in torchvision
  int64_t classes = 1000;
  ResnetStem stem = ResnetStem::kImagenet;
};

// torchvision's resnet18() and resnet50(), with the same parameter names, initialization and numerics. As there, the
// stride of a bottleneck is in its 3x3 convolution. With the default options they have 11,689,512 and 25,557,032
// parameters: conv1, bn1, layer1.0.conv1 ... layer4, fc.
std::shared_ptr<ImageModel> make_resnet18(const ResnetOptions& options);
std::shared_ptr<ImageModel> make_resnet50(const ResnetOptions& options);

// The network that the guide "Multi-GPU Distributed Training" calls ResNet-like: conv1 7x7 with stride 2, bn1, ReLU,
// 3x3 max pooling with stride 2; layer1, layer2 (stride 2) and layer3 (stride 2) of width, 2 width and 4 width
// channels, each with two 3x3 convolutions followed by batch norm and ReLU; global average pooling; fc. Convolutions
// have no bias. The children of a layer have their indices in its nn.Sequential: 0, 1, 3, 4. The initialization is
// torch.nn's default. With 3 channels, width 64 and 10 classes it has 1,193,546 parameters.
std::shared_ptr<ImageModel> make_resnet_like(int64_t channels, int64_t width, int64_t classes);

}  // namespace oarlock::image_classification
