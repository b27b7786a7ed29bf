// DDP communication hooks: implementations of c10d::CommHookInterface that reduce a bucket of gradients to its mean
// over the ranks. The reducer owns its hook; state that must survive a new reducer is shared. powersgd.h has the hook
// that compresses.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <memory>
#include <utility>
#include <vector>

#include "ddp/comm_hook_function.h"
#include "ddp/options.h"
#include "ddp/powersgd.h"
#include "ddp/process_group.h"
#include "ddp/shared_memory.h"

namespace oarlock {

// The state of SharedMemoryHook, which outlives the reducer that owns the hook.
//
// Buckets are collected until the backward pass is over. The backward pass already uses one core per thread, so that
// averaging at the same time would not hide any latency. Besides, ranks that wait for each other within the backward
// pass could deadlock if another rank is in a different collective of the same pass (SyncBatchNorm) because the graphs
// differ.
class SharedMemoryState {
 public:
  // Called by all ranks of the group, which must outlive the state. Returns null on all ranks if SharedMemory::open()
  // does.
  static std::shared_ptr<SharedMemoryState> open(const ProcessGroup& group);

  // Called within a backward pass. From now on buckets are collected.
  void begin_backward();
  // Averages the collected buckets. From now on a bucket is averaged when it is added.
  void finish_backward();

  // Sets the number by which the sum over the ranks is divided; initially the number of ranks.
  void divide_by(int ranks) { divisor_ = ranks; }

  // Replaces `gradients`, which must be one-dimensional and contiguous, by their mean over the ranks. The future
  // completes with them. Collects no more buckets after the last one of a backward pass within that of begin_backward()
  // (reentrant checkpointing), at whose end the reducer waits for all of them.
  c10::intrusive_ptr<c10::ivalue::Future> average(at::Tensor gradients, bool is_last);

 private:
  struct Bucket {
    at::Tensor gradients;
    c10::intrusive_ptr<c10::ivalue::Future> done;
  };

  SharedMemoryState(const ProcessGroup& group, std::unique_ptr<SharedMemory> memory);
  void average_bucket(const Bucket& bucket);
  void average_chunk(at::Tensor chunk);
  at::Tensor slot(int rank, const at::Tensor& like) const;

  const ProcessGroup& group_;
  std::unique_ptr<SharedMemory> memory_;
  std::vector<Bucket> collected_;
  bool collecting_ = false;
  int backward_pass_ = -1;  // of begin_backward()
  int divisor_;
  int next_slot_ = 0;
};

// For ranks on the CPU of one machine: averages gradients in memory that the ranks share. Each rank copies its
// gradients there and adds up those of all ranks in rank order, so that all ranks get the same bits, independent of the
// layout of the buckets.
class SharedMemoryHook final : public c10d::CommHookInterface {
 public:
  explicit SharedMemoryHook(std::shared_ptr<SharedMemoryState> state) : state_(std::move(state)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return state_->average(bucket.getBuffer(), bucket.isLast());
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  std::shared_ptr<SharedMemoryState> state_;
};

// A hook of the program.
class UserHook final : public c10d::CommHookInterface {
 public:
  explicit UserHook(CommHookFunction hook) : hook_(std::move(hook)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override { return hook_(bucket); }
  // Also accepts a list of one tensor, the result of c10d::ProcessGroup::allreduce().
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  CommHookFunction hook_;
};

struct CommHookState {
  CommHookFunction user_hook;                        // for CommHook::kNone; may be empty
  std::shared_ptr<PowerSgdState> powersgd;           // required for CommHook::kPowerSgd
  std::shared_ptr<SharedMemoryState> shared_memory;  // for CommHook::kNone; null if the ranks share no memory
};

// Creates the hook that `config` selects. Returns null for the reducer's built-in all-reduce. The group must outlive
// the hook. Gradients become their mean over the ranks, approximately for hooks that compress.
std::unique_ptr<c10d::CommHookInterface> make_comm_hook(const DdpOptions& config, const ProcessGroup& group,
                                                        const CommHookState& state);

}  // namespace oarlock
