#include "trainer/nn/module_tensors.h"

#include <torch/nn/module.h>

#include <cstdint>
#include <set>

namespace oarlock {
namespace {

constexpr int64_t kImageDimensions = 4;

std::vector<NamedTensor> unique(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  std::vector<NamedTensor> out;
  std::set<const void*> seen;
  for (const auto& item : tensors) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
      out.push_back({item.key(), item.value()});
  }
  return out;
}

}  // namespace

std::vector<NamedTensor> unique_parameters(const torch::nn::Module& module) {
  return unique(module.named_parameters());
}

std::vector<NamedTensor> unique_buffers(const torch::nn::Module& module) { return unique(module.named_buffers()); }

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
