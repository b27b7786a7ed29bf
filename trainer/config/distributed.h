// The section "distributed": how the ranks meet and talk.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class BackendKind { kAuto, kGloo, kNccl };

// Where the device or backend that was asked for is not there: an error, or the CPU with Gloo and a warning.
enum class Fallback { kNone, kCpu };

struct DistributedConfig {
  BackendKind backend = BackendKind::kAuto;  // auto: nccl on cuda, gloo on the cpu
  double rendezvous_timeout_seconds = 300;
  double timeout_seconds = 600;  // of one collective
  Fallback fallback = Fallback::kNone;
  int64_t check_parameters_every = 0;  // steps; 0: at the end only
};

void describe(DistributedConfig& config, Fields& fields);

}  // namespace oarlock
