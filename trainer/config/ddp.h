// The section "ddp": distributed data parallel, with the names of torch.nn.parallel.DistributedDataParallel.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

// How gradients are made smaller on their way over the network.
enum class CommHook { kNone, kFp16, kBf16, kPowerSgd };

// The names and defaults of PowerSGDState (torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py).
struct PowerSgdConfig {
  int64_t matrix_approximation_rank = 1;
  int64_t start_iteration = 1000;  // start_powerSGD_iter
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  bool warm_start = true;
  double orthogonalization_epsilon = 0;
  int64_t random_seed = 0;
  bool save_state = true;
};

struct DdpConfig {
  double bucket_cap_mb = 25;
  bool gradient_as_bucket_view = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
  bool sync_batch_norm = false;
  bool shared_memory = true;
  CommHook comm_hook = CommHook::kNone;
  PowerSgdConfig powersgd;
};

void describe(DdpConfig& config, Fields& fields);

}  // namespace oarlock
