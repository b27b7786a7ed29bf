// Collation of tensors into batches by stacking and by padding. The samples of the whole dataset are in one tensor, so
// that a batch is copied row by row into reused memory, without a tensor per sample. graph_collation.h collates graphs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/batch.h"

namespace oarlock {

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
