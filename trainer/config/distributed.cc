#include "trainer/config/distributed.h"

#include "trainer/config/limits.h"

namespace oarlock {
namespace {

constexpr double kMaxBucketMb = 1e6;

void describe_powersgd(PowerSgdOptions& config, Fields& fields) {
  fields.field("matrix_approximation_rank", config.matrix_approximation_rank, from_to(1, kMaxLayerWidth),
               "rank of the low-rank approximation of a gradient");
  fields.field("start_powerSGD_iter", config.start_iteration, from_to(0, kMaxSteps),
               "steps with plain averaging before the first compressed one");
  fields.field("min_compression_rate", config.min_compression_rate, above(0),
               "gradients with a lower compression rate are sent uncompressed");
  fields.field("use_error_feedback", config.use_error_feedback, "add the compression error to the next gradient");
  fields.field("warm_start", config.warm_start, "start from the factors of the previous step");
  fields.field("orthogonalization_epsilon", config.orthogonalization_epsilon, at_least(0),
               "added to the norm of a column that may be zero");
  fields.field("random_seed", config.random_seed, from_to(0, 4294967295.0), "seed of the initial factors");
  fields.field("save_state", config.save_state,
               "include the state of PowerSGD in checkpoints, so that a resumed run is bitwise equal to one that was "
               "not interrupted. With use_error_feedback the state is as large as the gradients of all ranks, and rank "
               "0 gathers it at each save. false: a resumed run starts with plain averaging");
  // Buckets are rebuilt after the first step, so no state is carried over before the third step.
  if ((config.use_error_feedback || config.warm_start) && config.start_iteration <= 1) {
    fields.problem("start_powerSGD_iter", "must be above 1 with use_error_feedback or warm_start");
  }
}

}  // namespace

void describe(DistributedConfig& config, Fields& fields) {
  fields.choice<BackendKind>("backend", config.backend,
                             {{"auto", BackendKind::kAuto}, {"gloo", BackendKind::kGloo}, {"nccl", BackendKind::kNccl}},
                             "auto: nccl on CUDA devices, gloo on the CPU");
  fields.field("rendezvous_timeout_seconds", config.rendezvous_timeout_seconds, above_to(0, kMaxSeconds),
               "timeout in seconds for all ranks to join the rendezvous");
  fields.field("timeout_seconds", config.timeout_seconds, above_to(0, kMaxSeconds),
               "timeout of one collective in seconds");
  fields.choice<Fallback>("fallback", config.fallback, {{"none", Fallback::kNone}, {"cpu", Fallback::kCpu}},
                          "if the configured device or backend is not available: fail, or use the CPU");
  fields.scope("fallback", Scope::kRank);
  fields.field("check_parameters_every", config.check_parameters_every, from_to(0, kMaxSteps),
               "steps between two comparisons of all ranks' parameters; 0: only at the end");
}

void describe(DdpOptions& config, Fields& fields) {
  fields.field("bucket_cap_mb", config.bucket_cap_mb, above_to(0, kMaxBucketMb),
               "size in MiB of a bucket of gradients, which are reduced together");
  fields.field("gradient_as_bucket_view", config.gradient_as_bucket_view,
               "gradients are views of the buckets, which saves memory and a copy");
  fields.field("find_unused_parameters", config.find_unused_parameters,
               "find the parameters that a step does not use; costs a traversal of the graph");
  fields.field("static_graph", config.static_graph, "every step uses the same parameters in the same way");
  fields.field("broadcast_buffers", config.broadcast_buffers, "broadcast rank 0's buffers before every forward pass");
  fields.field("sync_batch_norm", config.sync_batch_norm,
               "compute the statistics of batch norm over the batches of all ranks");
  fields.field(
      "shared_memory", config.shared_memory,
      "if comm_hook is none, up to 16 CPU ranks of one machine or pod average gradients in shared memory, after the "
      "backward pass. false: through the backend, overlapped with the backward pass, as between machines");
  fields.choice<CommHook>("comm_hook", config.comm_hook,
                          {{"none", CommHook::kNone},
                           {"fp16", CommHook::kFp16},
                           {"bf16", CommHook::kBf16},
                           {"powersgd", CommHook::kPowerSgd}},
                          "compression of the gradients that are sent to other ranks");
  fields.section(
      "powersgd", [&](Fields& inner) { describe_powersgd(config.powersgd, inner); }, "settings of comm_hook: powersgd");
}

void describe(CudaConfig& config, Fields& fields) {
  fields.field("graphs", config.graphs, "record a training step as a CUDA graph and replay it; shapes must not change");
  fields.field("channels_last", config.channels_last,
               "store images and the weights of convolutions in the channels-last memory format");
  fields.field("tf32", config.tf32, "float32 matrix products and convolutions in TF32: faster, 10 bits of mantissa");
  fields.field("memory_fraction", config.memory_fraction, above_to(0, 1),
               "fraction of the device memory that a rank may allocate before it is out of memory");
  fields.scope("memory_fraction", Scope::kRank);
  fields.field("cudnn_benchmark", config.cudnn_benchmark, "cuDNN benchmarks its algorithms for each new shape");
  fields.field("deterministic", config.deterministic, "use deterministic kernels only");
  if (config.cudnn_benchmark && config.deterministic) {
    fields.problem("cudnn_benchmark",
                   "selects kernels by their speed, so a run is not repeatable; remove it or cuda.deterministic");
  }
}

}  // namespace oarlock
