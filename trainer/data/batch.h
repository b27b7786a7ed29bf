// A batch of samples: the named tensors that a dataset passes to a task, and the indices of the samples; and the
// collation of tensors into batches by stacking and by padding. graph_collation.h collates graphs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock {

struct Batch {
  std::map<std::string, at::Tensor> tensors;  // dimension 0 is the sample, unless the collation defines otherwise
  std::vector<int64_t> ids;                   // indices of the samples in the dataset, in order
  bool pinned = false;  // whether allocate() returns page-locked memory, which allows asynchronous copies to CUDA

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }

  // Called by datasets. Returns an uninitialized contiguous CPU tensor under this name. The memory of the previous
  // tensor of this name is reused if it is large enough and has no other owner. So a batch that is still referenced
  // never changes, and a batch that was released costs neither an allocation nor page faults. (Pinned memory is reused
  // by LibTorch's allocator, which records when the copies from it are complete.)
  at::Tensor& allocate(const std::string& name, at::IntArrayRef sizes, at::ScalarType type);
};

// Returns an uninitialized contiguous CPU tensor for samples that stay in memory for the whole run. Its memory uses
// huge pages if the kernel provides them, because the samples of a batch are scattered, and with small pages a third of
// the time of a copy is spent on TLB misses.
at::Tensor empty_samples(at::IntArrayRef sizes, at::ScalarType type);

// ---- Collation -------------------------------------------------------------------------------------------------
// The samples of the whole dataset are in one tensor, so that a batch is copied row by row into reused memory, without
// a tensor per sample.

// Stacks samples of equal shape. `source` is [n, ...], contiguous, on the CPU; batch[name] becomes [indices, ...].
// Throws std::out_of_range if an index is not in [0, n). Large sources are read faster if they were allocated with
// empty_samples().
void stack_rows(const at::Tensor& source, std::span<const int64_t> indices, const std::string& name, Batch& batch);

// Concatenated samples of unequal length. Sample i is values[offsets[i] .. offsets[i + 1]).
struct RaggedTensor {
  at::Tensor values;             // [sum of the lengths, ...], contiguous, on the CPU
  std::vector<int64_t> offsets;  // number of samples + 1; starts with 0 and is non-decreasing

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t length(int64_t sample) const {
    return offsets[static_cast<size_t>(sample) + 1] - offsets[static_cast<size_t>(sample)];
  }
};

// Concatenates samples along dimension 0. Returns kDataErr if there is no sample; or, naming the sample, if its dtype
// or its shape after dimension 0 differs from those of the first sample.
Result<RaggedTensor> make_ragged(std::span<const at::Tensor> samples);

// Pads samples to the length of the longest sample of the batch. batch[name] becomes [indices, longest, ...], with
// `value` after the end of each sample; batch[name + "_length"] int64 [indices]; and batch[name + "_mask"] bool
// [indices, longest], true for the values of the samples. Throws std::out_of_range if an index is out of range.
void pad_rows(const RaggedTensor& source, std::span<const int64_t> indices, double value, const std::string& name,
              Batch& batch);

}  // namespace oarlock
