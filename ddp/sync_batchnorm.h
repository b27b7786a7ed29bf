// Conversion to synchronized batch normalization, as torch.nn.SyncBatchNorm.convert_sync_batchnorm
// (torch/nn/modules/batchnorm.py).
#pragma once

#include <torch/nn/module.h>

#include "common/error.h"
#include "ddp/process_group.h"

namespace oarlock {

// Makes every BatchNorm (ddp/batch_norm.h) in `module` compute its statistics over the group, which must outlive the
// module. Does nothing in a group of one rank. Fails with kConfig if the module contains a torch::nn::BatchNorm, which
// cannot be converted: its forward() is not virtual, and a member of its type cannot hold another module.
Result<void> convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group);
Result<void> convert_sync_batchnorm(torch::nn::Module& module, ProcessGroup&& group) = delete;

}  // namespace oarlock
