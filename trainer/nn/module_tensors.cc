#include "trainer/nn/module_tensors.h"

#include <torch/nn/module.h>

#include <cstdint>

namespace oarlock {
namespace {

constexpr int64_t kImageDimensions = 4;

}  // namespace

DerivedTensors derived_tensors(const torch::nn::Module& module) {
  DerivedTensors out;
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()}) {
    std::map<const void*, std::string> first;
    for (const auto& item : tensors) {
      if (!item.value().defined()) continue;
      const auto [at, is_new] = first.emplace(item.value().unsafeGetTensorImpl(), item.key());
      if (!is_new) out.ties.emplace(item.key(), at->second);
    }
  }
  const auto add_constants = [&out](const torch::nn::Module& part, const std::string& prefix) {
    const auto* owner = dynamic_cast<const ConstantBuffers*>(&part);
    if (owner == nullptr) return;
    for (const auto& [name, value] : owner->constant_buffers()) out.constants.emplace(prefix + name, value);
  };
  add_constants(module, "");  // it need not be owned by a shared_ptr, which named_modules() requires to include it
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    add_constants(*item.value(), item.key() + ".");
  return out;
}

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
