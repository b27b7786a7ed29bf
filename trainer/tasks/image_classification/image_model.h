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

// [n, c, h, w] with the channels innermost, in which convolution and pooling are faster on the CPU. With one channel
// both layouts have the same bytes, and only strides say which is meant.
at::Tensor as_channels_last(const at::Tensor& images);

// A convolution without bias, as before a batch norm, that keeps height and width (divided by the stride, rounded up).
torch::nn::Conv2d plain_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride);

// Every 4-dimensional parameter of the module: gradients come in the layout of the images, and DDP's buckets take
// theirs from the parameters.
void use_channels_last(torch::nn::Module& module);

}  // namespace oarlock
