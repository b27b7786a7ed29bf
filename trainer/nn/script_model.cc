#include "trainer/nn/script_model.h"

#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <utility>

namespace oarlock {
namespace {

// Returns a module with the parameters, buffers and submodules of the script.
std::shared_ptr<torch::nn::Module> mirror(const torch::jit::Module& script);

void register_members(torch::nn::Module& to, const torch::jit::Module& script) {
  for (const auto& item : script.named_parameters(/*recurse=*/false))
    to.register_parameter(item.name, item.value, item.value.requires_grad());
  for (const auto& item : script.named_buffers(/*recurse=*/false)) to.register_buffer(item.name, item.value);
  for (const auto& item : script.named_children()) to.register_module(item.name, mirror(item.value));
}

class Submodule final : public torch::nn::Module {
 public:
  explicit Submodule(const torch::jit::Module& script) { register_members(*this, script); }
};

std::shared_ptr<torch::nn::Module> mirror(const torch::jit::Module& script) {
  return std::make_shared<Submodule>(script);
}

}  // namespace

Result<std::shared_ptr<ScriptModel>> ScriptModel::load(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return fail(ExitCode::kNoInput, path + ": file not found; save one in Python: torch.jit.script(m).save(path)");
  try {
    auto script = std::make_unique<torch::jit::Module>(torch::jit::load(path, at::kCPU));
    return std::shared_ptr<ScriptModel>(new ScriptModel(path, std::move(script)));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return fail(ExitCode::kDataErr, path + ": not a TorchScript module: " + text.substr(0, text.find('\n')));
  }
}

ScriptModel::ScriptModel(std::string path, std::unique_ptr<torch::jit::Module> script)
    : path_(std::move(path)), script_(std::move(script)) {
  register_members(*this, *script_);
}

ScriptModel::~ScriptModel() = default;

at::Tensor ScriptModel::forward(const std::vector<at::Tensor>& inputs) {
  const c10::IValue output = script_->forward({inputs.begin(), inputs.end()});
  if (output.isTensor()) return output.toTensor();
  throw ErrorException(
      {ExitCode::kConfig, fmt::format("{}: forward() returns {} in {} mode, expected one Tensor; return "
                                      "it alone",
                                      path_, output.type()->repr_str(), is_training() ? "training" : "evaluation")});
}

void ScriptModel::train(bool on) {
  torch::nn::Module::train(on);
  // Module::train() of a script requires the attribute, which freezing removes.
  for (torch::jit::Module module : script_->modules()) {
    if (module.hasattr("training")) module.setattr("training", on);
  }
}

}  // namespace oarlock
