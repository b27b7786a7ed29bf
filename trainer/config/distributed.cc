#include "trainer/config/distributed.h"

namespace oarlock {

void describe(DistributedConfig& config, Fields& fields) {
  fields.choice<BackendKind>("backend", config.backend,
                             {{"auto", BackendKind::kAuto}, {"gloo", BackendKind::kGloo}, {"nccl", BackendKind::kNccl}},
                             "auto: nccl on CUDA devices, gloo on the CPU");
  fields.field("rendezvous_timeout_seconds", config.rendezvous_timeout_seconds, above(0),
               "until all ranks must have met");
  fields.field("timeout_seconds", config.timeout_seconds, above(0), "until a collective must be over");
}

}  // namespace oarlock
