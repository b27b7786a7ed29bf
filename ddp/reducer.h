// A c10d::Reducer whose state can be saved and restored, and the checkpoint's section on gradient reduction: everything
// that determines how gradients are averaged and that is not in the configuration. With it, a resumed run computes the
// same bits as an uninterrupted one. docs/checkpoint-format.md specifies the JSON.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ddp/options.h"
#include "ddp/reduction_state.h"

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

// `states` has the state of each rank, which may differ between ranks only in `uses` and `used`. `names` are those of
// the trainable parameters.
nlohmann::json to_json(const std::vector<ReducerState>& states, const std::vector<std::string>& names,
                       const DdpOptions& config);

// Returns the state of `rank`, or nullopt if it does not apply because the number of ranks, the parameters or the
// bucketing has changed.
std::optional<ReducerState> reducer_state_from_json(const nlohmann::json& values, const std::vector<std::string>& names,
                                                    const DdpOptions& config, int rank, int world_size);

class ResumableReducer final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  ReducerState state() const;

  // Continues from the state of another process's reducer. Call it after set_static_graph() and before the first pass;
  // `state.buckets` must be those of the constructor.
  void load_state(const ReducerState& state);
};

struct ReducerOptions {
  int64_t bucket_bytes_cap = 0;
  int64_t first_bucket_bytes_cap = 0;  // of the bucket that is ready first: small, so that communication starts early
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = true;
};

// `bucket_indices` are those of c10d::compute_bucket_assignment_by_size in reverse order: the first bucket is the first
// to be ready in the backward pass. The constructor of c10d::Reducer changes between versions of LibTorch; this
// function is its only caller.
std::shared_ptr<ResumableReducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                               const std::vector<std::vector<size_t>>& bucket_indices,
                                               const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                               const std::unordered_map<size_t, std::string>& parameter_names,
                                               const ReducerOptions& options);

}  // namespace oarlock
