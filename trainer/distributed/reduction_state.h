// The checkpoint's section on gradient reduction: everything that determines how gradients are averaged and that is not
// in the configuration. A resumed run needs it to get the same bits as an uninterrupted run. docs/checkpoint-format.md
// specifies the JSON.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/distributed.h"

namespace oarlock {

// State that a reducer has derived from earlier steps. The last bits of a sum over three or more ranks depend on the
// position of a gradient in its bucket, and so do PowerSGD's factors.
struct ReducerState {
  std::vector<std::vector<size_t>> buckets;  // indices of parameters, in the order in which buckets are reduced
  bool rebuilt = false;  // whether buckets have been rebuilt in the order in which gradients become ready
  // The order in which gradients became ready in the first backward pass, as indices of parameters, until the buckets
  // are rebuilt. Not in checkpoints, which are saved after that.
  std::vector<int64_t> ready_order;
  // For a static graph, indexed by parameter; empty until the graph is known.
  std::vector<int64_t> uses;  // uses of a parameter on this rank in one backward pass
  std::vector<int64_t> used;  // 0 if no rank uses the parameter
};

struct ReductionState {
  nlohmann::json values;                      // the same on all ranks; null if there is no state
  std::map<std::string, at::Tensor> tensors;  // of all ranks; on rank 0 only
};

inline constexpr char kPowerSgdValues[] = "powersgd";  // key in ReductionState::values

// `states` has the state of each rank, which may differ between ranks only in `uses` and `used`. `names` are those of
// the trainable parameters.
nlohmann::json to_json(const std::vector<ReducerState>& states, const std::vector<std::string>& names,
                       const DdpConfig& config);

// Returns the state of `rank`, or nullopt if it does not apply because the number of ranks, the parameters or the
// bucketing has changed.
std::optional<ReducerState> reducer_state_from_json(const nlohmann::json& values, const std::vector<std::string>& names,
                                                    const DdpConfig& config, int rank, int world_size);

}  // namespace oarlock
