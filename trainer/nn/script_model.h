// A TorchScript module (torch.jit.script in Python, saved with .save()) as a module that trains here: legacy input for
// models whose Python nobody wants to write again.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "common/error.h"

namespace torch::jit {
struct Module;
}

namespace oarlock {

// Parameters and buffers are the script's own, registered under their names ("features.0.weight") through plain modules
// that mirror its structure, so that DDP, optimizers and checkpoints see what Python sees; what was frozen there stays
// frozen. Training mode and device reach the script.
class ScriptModel final : public torch::nn::Module {
 public:
  // kNoInput: there is no such file. kDataErr: it is no TorchScript module.
  static Result<std::shared_ptr<ScriptModel>> load(const std::string& path);
  ~ScriptModel() override;

  // The script's forward, which must give one tensor; throws what it throws.
  at::Tensor forward(const std::vector<at::Tensor>& inputs);

  void train(bool on = true) override;

 private:
  explicit ScriptModel(std::unique_ptr<torch::jit::Module> script);

  std::unique_ptr<torch::jit::Module> script_;
};

}  // namespace oarlock
