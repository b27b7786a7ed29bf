// SyncBatchNorm: batch normalization with the statistics of all ranks (ddp.sync_batch_norm).
#pragma once

#include "common/error.h"
#include "trainer/distributed/process_group.h"

namespace torch::nn {
class Module;
}

namespace oarlock {

// Makes every BatchNorm (trainer/nn/batch_norm.h) in `module` compute its statistics over the group, which must outlive
// the module. Does nothing in a group of one rank. kConfig if the module contains a torch::nn::BatchNorm, which cannot
// be converted.
Result<void> convert_sync_batch_norm(torch::nn::Module& module, const ProcessGroup& group);

}  // namespace oarlock
