// The options of DistributedDataParallel. LibTorch-free.
#pragma once

#include <cstdint>

namespace oarlock {

// The communication hook: how gradients are compressed before they are sent. The hooks are those of
// torch/distributed/algorithms/ddp_comm_hooks.
enum class CommHook { kNone, kFp16, kBf16, kPowerSgd };

// The names and defaults of PowerSGDState (torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py).
struct PowerSgdOptions {
  int64_t matrix_approximation_rank = 1;
  int64_t start_iteration = 1000;  // start_powerSGD_iter
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  bool warm_start = true;
  double orthogonalization_epsilon = 0;
  int64_t random_seed = 0;
  bool save_state = true;  // whether reduction_state() includes the state of PowerSGD
};

// The names of torch.nn.parallel.DistributedDataParallel (torch/nn/parallel/distributed.py). All ranks must use the
// same options.
struct DdpOptions {
  double bucket_cap_mb = 25;  // MiB of gradients that are reduced together
  // Gradients are views of the buckets, which saves memory and a copy. torch::optim::Optimizer::zero_grad() of LibTorch
  // then throws; zero_grad() of DistributedDataParallel does not.
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
  // Calls convert_sync_batchnorm() for the module.
  bool sync_batch_norm = false;
  // Up to 16 ranks on the CPU of one machine average gradients in memory that they share, after the backward pass;
  // otherwise through the process group, overlapped with it.
  bool shared_memory = true;
  CommHook comm_hook = CommHook::kNone;
  PowerSgdOptions powersgd{};  // for CommHook::kPowerSgd
};

// The names and defaults of DistributedDataParallel.join() in Python.
struct JoinOptions {
  // Whether the sum of the gradients is always divided by the number of ranks, so that every batch has the same weight,
  // or by the number of ranks that still have batches. The latter needs CommHook::kNone.
  bool divide_by_initial_world_size = true;
  // Whether all ranks throw an exception as soon as one has no more batches.
  bool throw_on_early_termination = false;
};

}  // namespace oarlock
