#include "ddp/named_tensors.h"

#include <torch/nn/module.h>

#include <set>

namespace oarlock {
namespace {

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

}  // namespace oarlock
