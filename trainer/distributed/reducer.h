// c10d::Reducer whose state can be saved and restored.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/distributed/reduction_state.h"

namespace oarlock {

class ResumableReducer final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  ReducerState state() const;

  // Continues from the state of another process's reducer. Must precede the first pass and follow set_static_graph();
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
