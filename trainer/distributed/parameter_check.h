// Whether all ranks hold the same bits, as DDP promises.
#pragma once

#include <cstdint>
#include <vector>

#include "common/error.h"
#include "trainer/distributed/process_group.h"
#include "trainer/nn/named_tensors.h"

namespace oarlock {

// By a hash of each rank's tensors. Called by all ranks, with tensors of the same names.
bool equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const RankGroup& group);

// The same with a diagnosis. kSoftware, alike on all ranks: the first tensor that differs, and which ranks have other
// bits than most have. Costs one small collective and a hash of the tensors, which a CUDA device copies to the host.
Result<void> check_equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const RankGroup& group);

// The ranks whose value is not the one that most have; with as many of one as of another, not the lowest rank's. Pure.
std::vector<int> minority(const std::vector<int64_t>& values);

}  // namespace oarlock
