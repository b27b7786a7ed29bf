// What flows from a dataset to a task: named tensors, and which samples they came from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace oarlock {

struct Batch {
  std::map<std::string, at::Tensor>
      tensors;               // dimension 0 is the sample, unless the dataset's collation says otherwise
  std::vector<int64_t> ids;  // the samples' indices in the dataset, in order
  bool pinned = false;       // allocate() gives page-locked memory, from which copies to a CUDA device do not wait

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }

  // For datasets: the tensor of this name, contiguous, on the CPU, with elements that are not set. The memory is that
  // of the tensor which was there before if it is large enough and nobody else holds it; so a batch that somebody keeps
  // never changes, and one that is let go costs no allocation and no page faults. (Pinned memory is reused by
  // LibTorch's allocator, which knows when the copies from it are over.)
  at::Tensor& allocate(const std::string& name, at::IntArrayRef sizes, at::ScalarType type);
};

}  // namespace oarlock
