#include "trainer/distributed/reducer_compat.h"

#include "trainer/distributed/resumable_reducer.h"

namespace oarlock {

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
