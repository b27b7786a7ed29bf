#include "ddp/named_module.h"

#include <torch/nn/module.h>

#include <memory>
#include <string>

namespace oarlock {
namespace {

// Returns the module "features.0" of the name "features.0.weight", and reduces the name to "weight".
torch::nn::Module& add_submodules(torch::nn::Module& root, std::string& name) {
  torch::nn::Module* module = &root;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
    const std::string part = name.substr(0, dot);
    name.erase(0, dot + 1);
    const auto children = module->named_children();
    const auto* child = children.find(part);
    module =
        (child != nullptr ? *child : module->register_module(part, std::make_shared<torch::nn::Module>(part))).get();
  }
  return *module;
}

}  // namespace

void register_named_parameter(torch::nn::Module& root, const NamedTensor& parameter) {
  std::string name = parameter.name;
  add_submodules(root, name).register_parameter(name, parameter.tensor, parameter.tensor.requires_grad());
}

void register_named_buffer(torch::nn::Module& root, const NamedTensor& buffer) {
  std::string name = buffer.name;
  add_submodules(root, name).register_buffer(name, buffer.tensor);
}

}  // namespace oarlock
