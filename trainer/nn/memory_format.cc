#include "trainer/nn/memory_format.h"

namespace oarlock {
namespace {

constexpr int64_t kImageDimensions = 4;

}  // namespace

at::Tensor channels_last(const at::Tensor& tensor) {
  if (tensor.dim() != kImageDimensions) return tensor;
  if (tensor.size(1) != 1) return tensor.contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t height = tensor.size(2);
  const int64_t width = tensor.size(3);
  return tensor.contiguous().as_strided(tensor.sizes(), {height * width, 1, width, 1});
}

void to_channels_last(torch::nn::Module& module) {
  for (at::Tensor& parameter : module.parameters()) parameter.set_data(channels_last(parameter.detach()));
  for (at::Tensor& buffer : module.buffers()) buffer.set_data(channels_last(buffer));
}

}  // namespace oarlock
