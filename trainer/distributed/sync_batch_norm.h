// Turns on batch norm over all ranks in a model (ddp.sync_batch_norm).
#pragma once

#include "common/error.h"
#include "trainer/distributed/process_group.h"

namespace torch::nn {
class Module;
}

namespace oarlock {

// Every BatchNorm (trainer/nn/batch_norm.h) in `module` takes its statistics over the group, which must outlive it; in
// a world of one they stay as they are. kConfig where there is a torch::nn::BatchNorm, which cannot be converted.
Result<void> convert_sync_batch_norm(torch::nn::Module& module, const RankGroup& group);

}  // namespace oarlock
