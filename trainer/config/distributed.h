// The sections of the configuration about ranks and devices: "distributed", "ddp" and "cuda".
#pragma once

#include <cstdint>

#include "fields/fields.h"

namespace oarlock {

enum class BackendKind { kAuto, kGloo, kNccl };

// The reaction if the configured device or backend is not available: an error, or the CPU with Gloo and a warning.
enum class Fallback { kNone, kCpu };

struct DistributedConfig {
  BackendKind backend = BackendKind::kAuto;  // auto: nccl on CUDA devices, gloo on the CPU
  double rendezvous_timeout_seconds = 300;
  double timeout_seconds = 600;  // of one collective
  Fallback fallback = Fallback::kNone;
  int64_t check_parameters_every = 0;  // steps; 0: at the end only
};

// How gradients are compressed for the network.
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

// The names of torch.nn.parallel.DistributedDataParallel.
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

// channels_last and deterministic apply to the CPU too.
struct CudaConfig {
  bool graphs = false;
  bool channels_last = false;
  bool tf32 = false;
  double memory_fraction = 1;
  bool cudnn_benchmark = false;
  bool deterministic = false;
};

void describe(DistributedConfig& config, Fields& fields);
void describe(DdpConfig& config, Fields& fields);
void describe(CudaConfig& config, Fields& fields);

}  // namespace oarlock
