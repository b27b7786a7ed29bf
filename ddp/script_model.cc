#include "ddp/script_model.h"

#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <utility>

#include "ddp/named_module.h"

namespace oarlock {

Result<std::shared_ptr<ScriptModel>> ScriptModel::load(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return fail(ExitCode::kNoInput, path + ": file not found; save one in Python: torch.jit.script(m).save(path)");
  try {
    return std::make_shared<ScriptModel>(torch::jit::load(path, at::kCPU), path);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return fail(ExitCode::kDataErr, path + ": not a TorchScript module: " + text.substr(0, text.find('\n')));
  }
}

ScriptModel::ScriptModel(const torch::jit::Module& script, std::string label)
    : label_(std::move(label)), script_(std::make_unique<torch::jit::Module>(script)) {
  for (const auto& item : script_->named_parameters()) register_named_parameter(*this, {item.name, item.value});
  for (const auto& item : script_->named_buffers()) register_named_buffer(*this, {item.name, item.value});
}

ScriptModel::~ScriptModel() = default;

at::Tensor ScriptModel::forward(const std::vector<at::Tensor>& inputs) {
  const c10::IValue output = script_->forward({inputs.begin(), inputs.end()});
  if (output.isTensor()) return output.toTensor();
  throw ErrorException(
      {ExitCode::kConfig, fmt::format("{}: forward() returns {} in {} mode, expected one Tensor; return "
                                      "it alone",
                                      label_, output.type()->repr_str(), is_training() ? "training" : "evaluation")});
}

void ScriptModel::train(bool on) {
  torch::nn::Module::train(on);
  // Module::train() of a script requires the attribute, which freezing removes.
  for (torch::jit::Module module : script_->modules()) {
    if (module.hasattr("training")) module.setattr("training", on);
  }
}

}  // namespace oarlock
