// The part of DistributedDataParallelBase for ranks with different numbers of batches, after
// torch.distributed.algorithms.Join (torch/distributed/algorithms/join.py) and _DDPJoinHook
// (torch/nn/parallel/distributed.py).
//
// Every forward() begins with a collective in which each rank states whether it still has batches. A rank that has none
// repeats it, and takes part in the collectives of the step with gradients of zero, until no rank has any.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "ddp/batch_norm.h"
#include "ddp/comm_hook.h"
#include "ddp/distributed_data_parallel_base.h"
#include "ddp/reducer.h"

namespace oarlock {
namespace {

// What the ranks do in one step.
struct Round {
  int active_ranks = 0;  // number of ranks that have a batch
  int highest_rank = 0;  // the highest of these ranks
  bool has_gradients = false;
  bool synchronizes = false;
};

// Called by all ranks.
Round exchange_round(const ProcessGroup& group, bool is_active, bool has_gradients, bool synchronizes) {
  const auto ranks = static_cast<size_t>(group.world_size());
  std::vector<double> values(ranks + 2, 0);
  values[static_cast<size_t>(group.rank())] = is_active ? 1 : 0;
  values[ranks] = has_gradients ? 1 : 0;
  values[ranks + 1] = synchronizes ? 1 : 0;
  group.all_reduce_sum(values);
  Round out{.has_gradients = values[ranks] > 0, .synchronizes = values[ranks + 1] > 0};
  for (int rank = 0; rank < group.world_size(); ++rank) {
    if (values[static_cast<size_t>(rank)] == 0) continue;
    ++out.active_ranks;
    out.highest_rank = rank;
  }
  return out;
}

[[noreturn]] void throw_terminated(const Round& round, const ProcessGroup& group) {
  throw ErrorException({ExitCode::kDataErr,
                        fmt::format("join: {} of {} ranks have no more batches, and throw_on_early_termination is set",
                                    group.world_size() - round.active_ranks, group.world_size())});
}

}  // namespace

Result<void> DistributedDataParallelBase::check_uneven_inputs(const JoinOptions& options) const {
  std::string obstacle;
  if (config_.static_graph) obstacle = "static_graph is set, and a rank without batches cannot record the graph";
  if (!first_sparse_parameter().empty())
    obstacle = "the module has sparse gradients, whose size a rank without batches cannot know";
  if (!options.divide_by_initial_world_size && (config_.comm_hook != CommHook::kNone || hook_state_->user_hook))
    obstacle = "the communication hook divides by the number of all ranks; set divide_by_initial_world_size";
  if (!options.throw_on_early_termination) {
    for (const auto& child : module_->modules()) {
      const auto* norm = dynamic_cast<const BatchNorm*>(child.get());
      if (norm != nullptr && norm->is_synchronized())
        obstacle = "synchronized batch normalization needs all ranks in every step; set throw_on_early_termination";
    }
  }
  if (obstacle.empty()) return {};
  return fail(ExitCode::kConfig, "join: " + obstacle);
}

void DistributedDataParallelBase::run_with_uneven_inputs(const std::function<void()>& steps,
                                                         const JoinOptions& options) {
  if (!reducer_) return steps();
  if (const Result<void> possible = check_uneven_inputs(options); !possible) throw ErrorException(possible.error());
  struct Reset {
    std::optional<Join>& join;
    ~Reset() { join.reset(); }
  } const reset{join_};
  join_ = Join{.options = options};
  steps();
  if (std::exchange(is_unchecked_, false)) check_all_reduced();
  while (true) {
    const Round round = exchange_round(group_, /*is_active=*/false, /*has_gradients=*/false, /*synchronizes=*/false);
    if (round.active_ranks == 0) break;
    if (options.throw_on_early_termination) throw_terminated(round, group_);
    join_->highest_rank = round.highest_rank;
    shadow_step(round.has_gradients, round.synchronizes);
  }
  broadcast_state(join_->highest_rank);  // of the last step: a rank with the latest buffers
}

void DistributedDataParallelBase::announce_step(bool has_gradients) {
  const Round round = exchange_round(group_, /*is_active=*/true, has_gradients, synchronizing_);
  if (join_->options.throw_on_early_termination && round.active_ranks < group_.world_size())
    throw_terminated(round, group_);
  join_->active_ranks = round.active_ranks;
  join_->highest_rank = round.highest_rank;
}

// Takes part in the collectives of a step of the other ranks, in their order: begin_forward() and the backward pass.
void DistributedDataParallelBase::shadow_step(bool has_gradients, bool synchronizes) {
  if (has_gradients) rebuild_buckets();
  if (sync_buffers_in_forward_ && config_.broadcast_buffers && !buffers_after_backward_)
    broadcast_buffers(join_->highest_rank);
  sync_buffers_in_forward_ = synchronizes;
  if (!synchronizes) return;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> reductions;
  for (c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/true))
    reductions.push_back(reducer_->run_comm_hook(bucket));
  for (const auto& reduction : reductions) reduction->waitAndThrow();
  if (config_.find_unused_parameters) {
    const at::Tensor used = reducer_->get_local_used_map_on_device();
    used.zero_();
    group_.all_reduce(used);
  }
  reducer_->push_rebuilt_params_for_all_indices();
}

}  // namespace oarlock
