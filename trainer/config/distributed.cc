#include "trainer/config/distributed.h"

namespace oarlock {

void describe(DistributedConfig& config, Fields& fields) {
  fields.choice<BackendKind>("backend", config.backend,
                             {{"auto", BackendKind::kAuto}, {"gloo", BackendKind::kGloo}, {"nccl", BackendKind::kNccl}},
                             "auto: nccl on CUDA devices, gloo on the CPU");
  fields.field("rendezvous_timeout_seconds", config.rendezvous_timeout_seconds, above(0),
               "until all ranks must have met");
  fields.field("timeout_seconds", config.timeout_seconds, above(0), "until a collective must be over");
  fields.choice<Fallback>("fallback", config.fallback, {{"none", Fallback::kNone}, {"cpu", Fallback::kCpu}},
                          "where the device or backend that was asked for is not there: an error, or the CPU");
  fields.field("check_parameters_every", config.check_parameters_every, at_least(0),
               "steps from one comparison of all ranks' parameters to the next; 0: at the end only");
}

}  // namespace oarlock
