#include "trainer/tasks/image_classification/image_model.h"

namespace oarlock {

at::Tensor as_channels_last(const at::Tensor& images) {
  if (images.size(1) != 1) return images.contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t width = images.size(3);
  return images.contiguous().as_strided(images.sizes(), {images.size(2) * width, 1, width, 1});
}

torch::nn::Conv2d plain_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

void use_channels_last(torch::nn::Module& module) {
  for (at::Tensor& parameter : module.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(as_channels_last(parameter.detach()));
  }
}

}  // namespace oarlock
