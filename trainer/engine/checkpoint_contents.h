// What a checkpoint of a run contains: its tensors by section, and the members of "extra" in state.json.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "ddp/distributed_data_parallel_base.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/engine/checkpointer.h"

namespace oarlock {

// Members of "extra".
inline constexpr char kExtraTask[] = "task";
inline constexpr char kExtraSeed[] = "seed";
inline constexpr char kExtraBest[] = "best";
inline constexpr char kExtraSettings[] = "settings";
inline constexpr char kExtraData[] = "data";
inline constexpr char kReductionSection[] = "reduction";  // a member of "extra", and a file of tensors

// The tensors of the model share their storage with the model.
TensorMap model_tensors(DistributedDataParallelBase& model);
TensorSections live_tensors(DistributedDataParallelBase& model, const std::vector<Stateful*>& parts);

// Adds or removes the tensors that Python's load_state_dict() expects in addition to the state: tied weights under
// their further names, and constants.
void add_derived(const torch::nn::Module& module, TensorMap& tensors);
TensorMap without_derived(const torch::nn::Module& module, TensorMap tensors);

// Returns no tensors if the checkpoint does not have the section. The result refers to the checkpoint.
const TensorMap& tensors_of(const Checkpoint& checkpoint, std::string_view section);

// Fails with kConfig if the checkpoint in `directory` belongs to another task or seed.
Result<void> check_identity(const nlohmann::json& extra, const RunIdentity& identity, const std::string& directory);

// Returns "min" or "max".
const char* name_of(MetricMode mode);

bool is_better(MetricMode mode, double value, double than);

}  // namespace oarlock
