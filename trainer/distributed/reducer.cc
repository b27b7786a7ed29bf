#include "trainer/distributed/reducer.h"

namespace oarlock {

ReducerState ResumableReducer::state() const {
  ReducerState out;
  for (const Bucket& bucket : buckets_) out.buckets.push_back(bucket.variable_indices);
  out.rebuilt = has_rebuilt_bucket_;
  out.ready_order = rebuilt_param_indices_;
  if (!static_graph_ || num_bwd_calls_ == 0) return out;
  for (size_t i = 0; i < params_.size(); ++i) {
    out.uses.push_back(numGradHooksTriggeredMap_.at(i));
    out.used.push_back(local_used_map_[static_cast<int64_t>(i)].item<int64_t>());
  }
  return out;
}

void ResumableReducer::load_state(const ReducerState& state) {
  has_rebuilt_bucket_ = state.rebuilt;
  for (const int64_t index : state.ready_order) {
    rebuilt_params_.push_back(params_.at(static_cast<size_t>(index)));
    rebuilt_param_indices_.push_back(index);
  }
  if (state.uses.empty()) return;
  for (size_t i = 0; i < params_.size(); ++i) {
    numGradHooksTriggeredMap_[i] = static_cast<int>(state.uses.at(i));
    local_used_map_[static_cast<int64_t>(i)] = state.used.at(i);
    if (state.uses[i] == 0) unused_parameters_.push_back(i);
  }
  local_used_map_reduced_ = true;
  num_bwd_calls_ = 1;  // the first pass, which determines the static graph, has happened
}

std::shared_ptr<ResumableReducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                               const std::vector<std::vector<size_t>>& bucket_indices,
                                               const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                               const std::unordered_map<size_t, std::string>& parameter_names,
                                               const ReducerOptions& options) {
  // LibTorch 2.11: twelve arguments.
  return std::make_shared<ResumableReducer>(
      parameters, bucket_indices, group,
      /*expect_sparse_gradients=*/std::vector<bool>(parameters.size(), false), options.bucket_bytes_cap,
      options.find_unused_parameters, options.gradient_as_bucket_view, parameter_names, options.first_bucket_bytes_cap,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
}

}  // namespace oarlock
