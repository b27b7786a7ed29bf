// The sections of the configuration about ranks and devices: "distributed", "ddp" and "cuda".
#pragma once

#include <cstdint>

#include "ddp/options.h"
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
void describe(DdpOptions& config, Fields& fields);
void describe(CudaConfig& config, Fields& fields);

}  // namespace oarlock
