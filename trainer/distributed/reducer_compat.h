// The one place that knows the constructor of c10d::Reducer, which changes between LibTorch's versions.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace oarlock {

class ResumableReducer;

struct ReducerOptions {
  int64_t bucket_bytes_cap = 0;
  int64_t first_bucket_bytes_cap = 0;  // of the bucket that is ready first: small, so that communication starts early
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = true;
};

// `bucket_indices` as c10d::compute_bucket_assignment_by_size gives them, already reversed: the first bucket is the
// first to be ready in the backward pass.
std::shared_ptr<ResumableReducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                               const std::vector<std::vector<size_t>>& bucket_indices,
                                               const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                               const std::unordered_map<size_t, std::string>& parameter_names,
                                               const ReducerOptions& options);

}  // namespace oarlock
