// Verifies that tensors have the same bits on all ranks, as DDP guarantees.
#pragma once

#include <cstdint>
#include <vector>

#include "common/error.h"
#include "trainer/distributed/process_group.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {

// Whether the tensors are equal on all ranks, by comparing hashes. Called by all ranks, with tensors of the same names.
bool equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const ProcessGroup& group);

// As equal_on_all_ranks(), with a diagnosis: kSoftware, with the same message on all ranks, names the first tensor that
// differs and the ranks that deviate from the majority. Costs one small collective and a hash of the tensors, which are
// copied from a CUDA device to the host.
Result<void> check_equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const ProcessGroup& group);

// The ranks whose value is not the most common one. In a tie, the value of the lowest rank counts as the most common.
// Pure.
std::vector<int> minority(const std::vector<int64_t>& values);

}  // namespace oarlock
