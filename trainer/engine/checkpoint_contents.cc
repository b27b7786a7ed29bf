#include "trainer/engine/checkpoint_contents.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/nn/module_tensors.h"

namespace oarlock {

using Json = nlohmann::json;

TensorMap model_tensors(DistributedDataParallelBase& model) {
  TensorMap out;
  for (const NamedTensor& item : model.parameters()) out[item.name] = item.tensor.detach();
  for (const NamedTensor& item : model.buffers()) out[item.name] = item.tensor.detach();
  return out;
}

TensorSections live_tensors(DistributedDataParallelBase& model, const std::vector<Stateful*>& parts) {
  TensorSections out;
  out[kModelTensors] = model_tensors(model);
  for (const Stateful* part : parts) {
    if (TensorMap tensors = part->tensors(); !tensors.empty()) out[std::string(part->section())] = std::move(tensors);
  }
  return out;
}

void add_derived(const torch::nn::Module& module, TensorMap& tensors) {
  DerivedTensors derived = derived_tensors(module);
  for (const auto& [name, first] : derived.ties) tensors[name] = tensors.at(first);
  tensors.merge(std::move(derived.constants));
}

TensorMap without_derived(const torch::nn::Module& module, TensorMap tensors) {
  const DerivedTensors derived = derived_tensors(module);
  for (const auto& [name, first] : derived.ties) tensors.erase(name);
  for (const auto& [name, value] : derived.constants) tensors.erase(name);
  return tensors;
}

const TensorMap& tensors_of(const Checkpoint& checkpoint, std::string_view section) {
  static const TensorMap kNothing;
  const auto found = checkpoint.tensors.find(std::string(section));
  return found == checkpoint.tensors.end() ? kNothing : found->second;
}

Result<void> check_identity(const Json& extra, const RunIdentity& identity, const std::string& directory) {
  const std::string task = extra.value(kExtraTask, identity.task);
  const uint64_t seed = extra.value(kExtraSeed, identity.seed);
  if (task != identity.task) {
    return fail(ExitCode::kConfig,
                fmt::format("{}: the checkpoint is of the task '{}', the configuration has '{}'; use another "
                            "checkpoint.dir",
                            directory, task, identity.task));
  }
  if (seed != identity.seed) {
    return fail(ExitCode::kConfig,
                fmt::format("{}: the checkpoint was trained with seed {}, the configuration has {}; restore the seed, "
                            "or use another checkpoint.dir",
                            directory, seed, identity.seed));
  }
  return {};
}

const char* name_of(MetricMode mode) { return mode == MetricMode::kMin ? "min" : "max"; }

bool is_better(MetricMode mode, double value, double than) {
  return mode == MetricMode::kMin ? value < than : value > than;
}

}  // namespace oarlock
