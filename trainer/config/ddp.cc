#include "trainer/config/ddp.h"

namespace oarlock {
namespace {

void describe(PowerSgdConfig& config, Fields& fields) {
  fields.field("matrix_approximation_rank", config.matrix_approximation_rank, at_least(1),
               "columns of the two factors that stand for a gradient");
  fields.field("start_powerSGD_iter", config.start_iteration, at_least(0),
               "steps with plain averaging before the first compressed one");
  fields.field("min_compression_rate", config.min_compression_rate, above(0),
               "a gradient that would shrink less is sent as it is");
  fields.field("use_error_feedback", config.use_error_feedback, "what compression lost is added to the next gradient");
  fields.field("warm_start", config.warm_start, "start from the factors of the step before");
  fields.field("orthogonalization_epsilon", config.orthogonalization_epsilon, at_least(0),
               "added to the norm of a column that may be zero");
  fields.field("random_seed", config.random_seed, from_to(0, 4294967295.0), "of the first factors");
  fields.field("save_state", config.save_state,
               "what it keeps from step to step goes into checkpoints, so that a resumed run has the bits of an "
               "undisturbed one: with use_error_feedback as many bytes as the gradients of all ranks, which rank 0 "
               "gathers at each save. false: a resumed run begins with plain averaging");
  // Buckets are rebuilt after the first step, so there is nothing to carry over before the third.
  if ((config.use_error_feedback || config.warm_start) && config.start_iteration <= 1) {
    fields.problem("start_powerSGD_iter", "must be above 1 with use_error_feedback or warm_start");
  }
}

}  // namespace

void describe(DdpConfig& config, Fields& fields) {
  fields.field("bucket_cap_mb", config.bucket_cap_mb, above(0), "MiB of gradients that are reduced together");
  fields.field("gradient_as_bucket_view", config.gradient_as_bucket_view,
               "gradients live inside the buckets: less memory, one copy less");
  fields.field("find_unused_parameters", config.find_unused_parameters,
               "look for parameters that a step does not use; costs a walk over the graph");
  fields.field("static_graph", config.static_graph, "promise that every step uses the same parameters alike");
  fields.field("broadcast_buffers", config.broadcast_buffers, "rank 0's buffers to all ranks before every forward");
  fields.field("sync_batch_norm", config.sync_batch_norm,
               "batch norm over the batches of all ranks as if they were one");
  fields.field("shared_memory", config.shared_memory,
               "ranks on the CPU of one machine or pod, 16 at most and without comm_hook, average through memory that "
               "they share, after the backward pass; false: through the backend and beside it, as between machines");
  fields.choice<CommHook>("comm_hook", config.comm_hook,
                          {{"none", CommHook::kNone},
                           {"fp16", CommHook::kFp16},
                           {"bf16", CommHook::kBf16},
                           {"powersgd", CommHook::kPowerSgd}},
                          "how gradients are compressed on the network");
  fields.section("powersgd", [&](Fields& inner) { describe(config.powersgd, inner); }, "for comm_hook: powersgd");
}

}  // namespace oarlock
