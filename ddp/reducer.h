// A c10d::Reducer whose state can be saved and restored, and the checkpoint's section on gradient reduction: everything
// that determines how gradients are averaged and that is not in the configuration. With it, a resumed run computes the
// same bits as an uninterrupted one. docs/checkpoint-format.md specifies the JSON.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
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

#include "ddp/named_tensors.h"
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

// The reducer of a group that was left.
struct LeftReducer {
  int world_size = 0;
  ReducerState reducer;
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

  // As c10d::Reducer::prepare_for_backward(), which it replaces, for has_unfinished_reduction() and
  // parameters_without_gradient().
  void prepare_for_backward(const std::vector<at::Tensor>& outputs);
  // Whether the last backward pass has ended without the gradients of some parameters, so that it reduced nothing.
  bool has_unfinished_reduction() const { return require_finalize_; }
  // Whether a forward pass has been followed by a reduction.
  bool has_begun() const { return num_iterations_ > 0; }
  // The parameters for which the last backward pass has computed no gradient.
  std::vector<at::Tensor> parameters_without_gradient() const;

  // Sets the number by which the next backward pass divides the sum of the gradients, unless there is a communication
  // hook. Call it after prepare_for_backward().
  void divide_by(int ranks) { div_factor_ = ranks; }

  ReducerState state() const;

  // Continues from the state of another process's reducer. Call it after set_static_graph() and before the first pass;
  // `state.buckets` must be those of the constructor.
  void load_state(const ReducerState& state);
};

// Returns which of the parameters get sparse gradients, as _build_params_for_reducer() of distributed.py: the weights
// of torch::nn::Embedding and torch::nn::EmbeddingBag with the option `sparse`.
std::vector<bool> expect_sparse_gradients(const torch::nn::Module& module, const std::vector<NamedTensor>& parameters);

struct ReducerOptions {
  int64_t bucket_bytes_cap = 0;
  int64_t first_bucket_bytes_cap = 0;  // of the bucket that is ready first: small, so that communication starts early
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = true;
};

// `sparse` is the result of expect_sparse_gradients(). `bucket_indices` are those of
// c10d::compute_bucket_assignment_by_size in reverse order: the first bucket is the first
// to be ready in the backward pass. The constructor of c10d::Reducer changes between versions of LibTorch; this
// function is its only caller.
std::shared_ptr<ResumableReducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                               const std::vector<bool>& sparse,
                                               const std::vector<std::vector<size_t>>& bucket_indices,
                                               const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                               const std::unordered_map<size_t, std::string>& parameter_names,
                                               const ReducerOptions& options);

}  // namespace oarlock
