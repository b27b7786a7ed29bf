#include "trainer/tasks/image_classification/image_model.h"

namespace oarlock {

torch::nn::Conv2d plain_convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

}  // namespace oarlock
