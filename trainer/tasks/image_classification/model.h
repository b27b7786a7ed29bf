// Image classifiers. Their parameters have the names of the same modules in Python.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>
#include <memory>

#include "trainer/tasks/image_classification/config.h"
#include "trainer/tasks/image_classification/images.h"

namespace oarlock::image_classification {

class ImageModel : public torch::nn::Module {
 public:
  // [n, channels, height, width] -> logits [n, classes].
  virtual at::Tensor forward(const at::Tensor& images) = 0;
};

// Creates the model that the section "model" names, except for torchscript, which is a ScriptModel
// (nn/script_model.h). Initialized by torch's default generator: a seed gives the same weights as in Python.
std::shared_ptr<ImageModel> make_image_model(const ImageModelConfig& config, const ImageShape& shape);

// conv1 and conv2 (3x3, padding 1, each followed by ReLU and 2x2 max pooling), then fc1 ... fcN with ReLU between them.
// Images must be at least 4x4.
std::shared_ptr<ImageModel> make_cnn(const ImageModelConfig& config, const ImageShape& shape);

// fc1 ... fcN with ReLU between them.
std::shared_ptr<ImageModel> make_mlp(const ImageModelConfig& config, const ImageShape& shape);

// A convolution without bias, to be followed by a batch norm. It keeps height and width, divided by the stride and
// rounded up.
torch::nn::Conv2d plain_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride);

}  // namespace oarlock::image_classification
