// The section "ddp": distributed data parallel, with the names of torch.nn.parallel.DistributedDataParallel.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

struct DdpConfig {
  double bucket_cap_mb = 25;
  bool gradient_as_bucket_view = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
};

void describe(DdpConfig& config, Fields& fields);

}  // namespace oarlock
