// Collation by `stack` and by `pad`: how the samples of a batch become one tensor. The whole dataset lies in one
// tensor, so that a batch is copied row by row into the memory of an older batch, without a tensor per sample. (By
// `graph`: graph_collation.h.)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/batch.h"

namespace oarlock {

// Samples of equal shape. `source` is [n, ...], contiguous, on the CPU; batch[name] becomes [indices, ...]. Indices
// that are not below n throw std::out_of_range. Large sources are read sooner from empty_samples() (sample_memory.h).
void stack_rows(const at::Tensor& source, std::span<const int64_t> indices, const std::string& name, Batch& batch);

// Samples of unequal length, one after the other: sample i is values[offsets[i] .. offsets[i + 1]).
struct RaggedTensor {
  at::Tensor values;             // [sum of the lengths, ...], contiguous, on the CPU
  std::vector<int64_t> offsets;  // from 0, not descending; one more than there are samples

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t length(int64_t sample) const {
    return offsets[static_cast<size_t>(sample) + 1] - offsets[static_cast<size_t>(sample)];
  }
};

// One after the other. kDataErr, naming the sample, when its type or its shape behind dimension 0 is not the first's;
// kDataErr without a sample.
Result<RaggedTensor> make_ragged(std::span<const at::Tensor> samples);

// Each sample is made as long as the longest of the batch. batch[name] becomes [indices, longest, ...] with `value`
// behind the end of each; batch[name + "_length"] int64 [indices]; batch[name + "_mask"] bool [indices, longest], true
// where there is a sample's own value.
void pad_rows(const RaggedTensor& source, std::span<const int64_t> indices, double value, const std::string& name,
              Batch& batch);

}  // namespace oarlock
