#include "trainer/config/ddp.h"

namespace oarlock {

void describe(DdpConfig& config, Fields& fields) {
  fields.field("bucket_cap_mb", config.bucket_cap_mb, above(0), "MiB of gradients that are reduced together");
  fields.field("gradient_as_bucket_view", config.gradient_as_bucket_view,
               "gradients live inside the buckets: less memory, one copy less");
  fields.field("find_unused_parameters", config.find_unused_parameters,
               "look for parameters that a step does not use; costs a walk over the graph");
  fields.field("static_graph", config.static_graph, "promise that every step uses the same parameters alike");
  fields.field("broadcast_buffers", config.broadcast_buffers, "rank 0's buffers to all ranks before every forward");
}

}  // namespace oarlock
