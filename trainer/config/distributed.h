// The section "distributed": how the ranks meet and talk.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class BackendKind { kAuto, kGloo, kNccl };

struct DistributedConfig {
  BackendKind backend = BackendKind::kAuto;  // auto: nccl on cuda, gloo on the cpu
  double rendezvous_timeout_seconds = 300;
  double timeout_seconds = 600;  // of one collective
};

void describe(DistributedConfig& config, Fields& fields);

}  // namespace oarlock
