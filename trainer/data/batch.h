// A batch of samples: the named tensors that a dataset passes to a task, and the indices of the samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace oarlock {

struct Batch {
  std::map<std::string, at::Tensor> tensors;  // dimension 0 is the sample, unless the collation defines otherwise
  std::vector<int64_t> ids;                   // indices of the samples in the dataset, in order
  bool pinned = false;  // whether allocate() returns page-locked memory, which allows asynchronous copies to CUDA

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }

  // Called by datasets. Returns an uninitialized contiguous CPU tensor under this name. The memory of the previous
  // tensor of this name is reused if it is large enough and has no other owner. So a batch that somebody keeps never
  // changes, and a batch that was released costs neither an allocation nor page faults. (LibTorch's allocator reuses
  // pinned memory itself, because it knows when the copies from it are complete.)
  at::Tensor& allocate(const std::string& name, at::IntArrayRef sizes, at::ScalarType type);
};

// Returns an uninitialized contiguous CPU tensor for samples that stay in memory for the whole run. Its memory uses
// huge pages if the kernel provides them, because the samples of a batch are scattered, and with small pages a third of
// the time of a copy is spent on TLB misses.
at::Tensor empty_samples(at::IntArrayRef sizes, at::ScalarType type);

}  // namespace oarlock
