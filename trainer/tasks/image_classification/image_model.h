// What all image classifiers here are.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>

#include "trainer/tasks/image_classification/image_shape.h"

namespace oarlock {

// [n, channels, height, width] -> logits [n, classes].
class ImageModel : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& images) = 0;
};

// A convolution without bias, as before a batch norm, that keeps height and width (divided by the stride, rounded up).
torch::nn::Conv2d plain_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride);

}  // namespace oarlock
