// Training of a TorchScript module, which a Python program created with torch.jit.script and saved with .save(). It
// serves models that are not worth porting to C++. DistributedDataParallel accepts it as any other module.
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

// Registers the parameters and buffers of the script under their names ("features.0.weight"), through submodules that
// mirror its structure, so that DDP, optimizers and checkpoints use the names of Python. Frozen parameters remain
// frozen. The training mode and the device also apply to the script.
class ScriptModel final : public torch::nn::Module {
 public:
  // Loads a file on the CPU. Returns kNoInput if it does not exist, and kDataErr if it is not a TorchScript module. A
  // module that was frozen (torch.jit.freeze) has no parameters.
  static Result<std::shared_ptr<ScriptModel>> load(const std::string& path);
  // Shares the parameters and buffers of the script. `label` is the name of the script in messages.
  explicit ScriptModel(const torch::jit::Module& script, std::string label = "TorchScript module");
  ~ScriptModel() override;

  // Calls the forward method of the script. Throws its exceptions, and an ErrorException of kConfig if it does not
  // return one tensor.
  at::Tensor forward(const std::vector<at::Tensor>& inputs);
  at::Tensor forward(const at::Tensor& input) { return forward(std::vector<at::Tensor>{input}); }

  void train(bool on = true) override;

 private:
  std::string label_;
  std::unique_ptr<torch::jit::Module> script_;
};

}  // namespace oarlock
