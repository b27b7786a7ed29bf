// Conversion to synchronized batch normalization, as torch.nn.SyncBatchNorm.convert_sync_batchnorm
// (torch/nn/modules/batchnorm.py).
#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "common/error.h"
#include "ddp/process_group.h"

namespace oarlock {

// Makes every BatchNorm (ddp/batch_norm.h) in `module` compute its statistics over the group, which the module then
// shares. Does nothing in a group of one rank. Fails with kConfig if the module contains a torch::nn::BatchNorm, which
// cannot be converted: its forward() is not virtual, and a member of its type cannot hold another module.
Result<void> convert_sync_batchnorm(torch::nn::Module& module, std::shared_ptr<const ProcessGroup> group);
inline Result<void> convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group) {
  return convert_sync_batchnorm(module, std::make_shared<const ProcessGroup>(group));
}

}  // namespace oarlock
