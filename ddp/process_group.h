// The ranks of the job as one c10d process group, with the collectives of torch.distributed
// (torch/distributed/distributed_c10d.py) on tensors, numbers and texts. With a single rank there is no backend, and
// every collective is the identity.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "ddp/agreement.h"
#include "ddp/named_tensors.h"
#include "ddp/watchdog.h"

namespace oarlock {

// Wraps a c10d::ProcessGroup with collectives on plain values and results. All ranks must call the same collectives in
// the same order. A collective throws the exceptions of the backend when another rank is lost; to_error()
// (library_errors.h) converts these exceptions. Not thread-safe, except for sequence_number(). Copies share the group.
class ProcessGroup {
 public:
  // A group of one rank on the CPU.
  ProcessGroup() = default;
  // A null `group` stands for a group of one rank. `device` is where the backend requires its tensors. `leave`
  // implements leave(); it may be empty.
  ProcessGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, at::Device device, std::function<void()> leave = {})
      : group_(std::move(group)),
        device_(device),
        leave_(std::move(leave)),
        rank_(group_ ? group_->getRank() : 0),
        world_size_(group_ ? group_->getSize() : 1) {}

  // A rank of a group that is not connected: every collective is the identity, as in a group of one rank. A rank that
  // replaces a lost one prepares its data and its model as such, while the others wait for it.
  static ProcessGroup unconnected(int rank, int world_size, at::Device device) {
    ProcessGroup out(nullptr, device);
    out.rank_ = rank;
    out.world_size_ = world_size;
    return out;
  }

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  bool is_connected() const { return group_ != nullptr; }

  // Breaks the connections to all other ranks. Collectives in progress, of this rank and of the others, fail as if this
  // process had exited, so that no thread stays blocked and the group can be destroyed. Takes milliseconds, or half a
  // second if Gloo does not fail a collective of this rank. Any thread may call this. The group must not be used for
  // other collectives afterwards.
  void leave() const {
    if (!left_->exchange(true) && leave_) leave_();
  }
  // Whether leave() was called. Any thread may call this.
  bool has_left() const { return *left_; }

  // Reduces element-wise over the ranks, in place. The result has the same bits on all ranks. A tensor must be on
  // device(), contiguous, and of the same shape and type on all ranks; spans must have the same length.
  void all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op = c10d::ReduceOp::SUM) const;
  void all_reduce_sum(std::span<double> values) const;
  void all_reduce_max(std::span<double> values) const;

  // Returns the value of each rank, indexed by rank. Texts may differ in length.
  std::vector<int64_t> all_gather(int64_t value) const;
  std::vector<std::string> all_gather(const std::string& text) const;

  // Distributes the value of the rank `source`; the values of the other ranks are ignored. A result, always of rank 0,
  // includes its error. Tensors are overwritten on the other ranks.
  std::string broadcast(const std::string& text, int source = 0) const;
  void broadcast(const std::vector<at::Tensor>& tensors, int source = 0) const;
  Result<std::string> broadcast(const Result<std::string>& result) const;

  // Returns each rank's tensor, indexed by rank, on rank 0 and an empty vector on the others. All tensors must have the
  // same shape and type.
  std::vector<at::Tensor> gather_to_rank_0(const at::Tensor& tensor) const;
  // Copies tensors[rank] of rank 0 into `out` of each rank. `tensors` is ignored on the other ranks.
  void scatter_from_rank_0(at::Tensor out, std::vector<at::Tensor> tensors) const;

  // Succeeds if `result` is a success on every rank. Otherwise a failing rank returns its own error, and the others
  // return that of the failing rank with the lowest number, "rank 1: ...", so that all ranks stop together.
  Result<void> agree(const Result<void>& result) const;

  // Returns when all ranks have called it.
  void barrier() const;

  // Number of collectives that this rank has started. Any thread may call this.
  int64_t sequence_number() const;
  // Counts one collective that did not go through the backend.
  void count_collective() const { ++*collectives_outside_backend_; }

  // Null in a group of one rank.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const { return group_; }
  std::string backend_name() const;  // "nccl" or "gloo"; "" in a group of one rank
  at::Device device() const { return device_; }

 private:
  void all_reduce(std::span<double> values, c10d::ReduceOp op) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  at::Device device_ = at::kCPU;
  std::function<void()> leave_;
  std::shared_ptr<std::atomic<bool>> left_ = std::make_shared<std::atomic<bool>>(false);
  int rank_ = 0;
  int world_size_ = 1;
  std::shared_ptr<std::atomic<int64_t>> collectives_outside_backend_ = std::make_shared<std::atomic<int64_t>>(0);
};

struct ProcessGroupOptions {
  int rank = 0;
  int world_size = 1;
  at::Device device = at::kCPU;
  std::chrono::milliseconds timeout{600'000};          // of one collective
  std::chrono::milliseconds connect_timeout{300'000};  // until all ranks are connected
  std::string address;  // numeric address of the interface through which the other ranks reach this one
};

// Creates a Gloo group on the CPU. All ranks of the store must call this together. Throws the exceptions of Gloo.
ProcessGroup make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupOptions& options);

// Creates an NCCL group on options.device, and connects it. All ranks of the store must call this together, and must
// release the last copy of the group together. Errors are classified as by to_error() (library_errors.h): kPeerLost if
// a rank exits meanwhile, kUnavailable if two ranks share a GPU or the build has no NCCL.
Result<ProcessGroup> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupOptions& options);

// Call this before make_nccl_group(), and before other threads start, as it sets environment variables unless the user
// has. After the failure of a collective, LibTorch's watchdog would sleep for a minute and then end the process,
// although the ranks have left the group by then. nccl_group_state() reports the failure without it. (Watchdog::runLoop
// in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp)
void disable_nccl_watchdog_exit();

// Whether this build includes NCCL (OARLOCK_CUDA).
bool is_nccl_in_build();

// The state of a group that make_nccl_group() returned. Any thread may call this.
GroupState nccl_group_state(const ProcessGroup& group);

// The error of this rank's GPU, as CUDA describes it; empty if the GPU works. A connection also breaks on the rank
// whose GPU fails, and that rank is the cause. Any thread may call this.
std::string device_error();

// ---- Verification ----------------------------------------------------------------------------------------------
// DDP guarantees that parameters have the same bits on all ranks.

// A hash of the tensors' bits, as text. Tensors on a CUDA device are copied to the host.
std::string digest_of(const std::vector<NamedTensor>& tensors);

// Whether the tensors are equal on all ranks, by comparing hashes. Called by all ranks, with tensors of the same names.
bool equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const ProcessGroup& group);

// As equal_on_all_ranks(), with a diagnosis: kSoftware, with the same message on all ranks, names the first tensor that
// differs and the ranks that deviate from the majority. Costs one small collective and a hash of the tensors, which are
// copied from a CUDA device to the host.
Result<void> check_equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const ProcessGroup& group);

// Compares the settings of the ranks, or the fingerprints of their data, and fails with one message on all ranks as
// check_agreement() (agreement.h) does for the first rank that differs from rank 0. Called by all ranks.
Result<void> check_equal_on_all_ranks(AgreedKind kind, const AgreedValues& values, const ProcessGroup& group);

// The ranks whose value is not the most common one. In a tie, the value of the lowest rank counts as the most common.
// Pure.
std::vector<int> minority(const std::vector<int64_t>& values);

}  // namespace oarlock
