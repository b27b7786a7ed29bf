// A training loop that survives the loss of a rank: the other ranks keep their process and their state, and the process
// that replaces the lost one receives the state from one of them. No step is lost, and with the same number of ranks
// the parameters have the bits of a run without the loss (docs/recovery-engine.md, "What a step changes, and when").
// The launcher that replaces ranks is `oarlock launch --restart-policy rank --max-restarts N`.
//
//   const auto ranks = oarlock::init_recoverable_process_group();
//   oarlock::DistributedDataParallel model(net, ranks->group());
//   torch::optim::Adam optimizer(net->parameters());
//   oarlock::RecoverableLoop loop(*ranks, model, optimizer, {.seed = 1});
//   while (loop.steps() < 1000) {
//     loop.step([&] {
//       optimizer.zero_grad();
//       loss(model.forward(batch(loop.steps()))).backward();
//     });
//   }
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/error.h"
#include "ddp/buffer_rollback.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_data_parallel_base.h"
#include "ddp/group_membership.h"
#include "recovery/regroup.h"

namespace oarlock {

struct RecoverableLoopOptions {
  // Steps that were completed before, such as TrainingPosition::step of a checkpoint; the same on all ranks. A process
  // that replaces a lost one ignores it, and what it has loaded is replaced by the state of the others.
  int64_t first_step = 0;
  // Seeds the default generators of the CPU and of the group's device before each call of gradients(), by this number,
  // the rank and the step. Without it, a step that is repeated draws other numbers (dropout) than an undisturbed run.
  std::optional<uint64_t> seed{};
  // Tensors that update() changes in addition to those of the model and the optimizer, such as a moving average. Their
  // shapes are the same on all ranks, and their values, too, after each step.
  std::vector<at::Tensor> tensors{};
};

// All ranks construct it together, after the model and the optimizer, and call step() equally often. What is not in the
// model, the optimizer and options.tensors is to be computed from steps(): the data of a step, learning rates of a
// schedule, the epoch. The optimizer must implement save() and load(), as those of LibTorch do. The arguments must
// outlive the object. Not thread-safe.
//
// It does not recover, and the loss of a rank is an exception of step(), without a launcher that replaces ranks, and
// with static_graph, PowerSGD, register_comm_hook(), or broadcast_buffers: false for buffers that are not synchronized.
// These are reported to standard error.
class RecoverableLoop final : private GroupMember {
 public:
  // In a process that replaces a lost one, blocks until it has the state of the other ranks. Throws an ErrorException
  // as step() does.
  template <typename Module>
  RecoverableLoop(GroupMembership& ranks, DistributedDataParallel<Module>& model, torch::optim::Optimizer& optimizer,
                  RecoverableLoopOptions options = {})
      : RecoverableLoop(ranks, model.base(), optimizer, std::move(options)) {}
  RecoverableLoop(GroupMembership& ranks, DistributedDataParallelBase& model, torch::optim::Optimizer& optimizer,
                  RecoverableLoopOptions options);
  RecoverableLoop(const RecoverableLoop&) = delete;
  RecoverableLoop& operator=(const RecoverableLoop&) = delete;

  // Completed steps, with first_step. In a process that replaces a lost one, those of the group: it begins there.
  int64_t steps() const { return steps_; }

  // Makes the step of the number steps(), and adds 1 to it. gradients() has all collectives of the step: zero
  // the gradients, forward and backward passes, and before these an evaluation, if one is due. update() has none, and
  // may only change what is mentioned above. If a rank is lost, gradients() is left by an exception, and called again
  // in the next group, unless another rank has completed the step: this rank then takes over its state. update() is
  // called once at most.
  //
  // Throws what gradients() and update() throw, and an ErrorException with kPeerLost if the group cannot recover: the
  // process should end with that code (76), so that the launcher starts all ranks again, from a checkpoint of the
  // program if there is one.
  void step(const std::function<void()>& gradients, const std::function<void()>& update);
  // The update is that of the optimizer.
  void step(const std::function<void()>& gradients);

  // Called by all ranks after their last step: returns when all have completed it. A rank that is lost in its last
  // update is still replaced, which is not possible once another rank has exited. Throws as step() does.
  void finish();

 private:
  void compute(const std::function<void()>& gradients);
  void recover(const std::exception_ptr& exception);
  void leave_group() override;
  RecoveryState recovery_state() const override;
  Result<void> join_group(const LostRank& lost) override;

  GroupMembership& ranks_;
  DistributedDataParallelBase& model_;
  torch::optim::Optimizer& optimizer_;
  RecoverableLoopOptions options_;
  BufferRollback buffers_;
  bool recovers_ = false;
  int64_t steps_ = 0;
  bool is_in_step_ = false;  // compute() has not returned
  bool has_state_ = false;   // whether the state is that of steps_
  bool has_stepped_in_group_ = false;
};

}  // namespace oarlock
