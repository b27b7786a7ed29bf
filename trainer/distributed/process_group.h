// The ranks of the job as one group. A world of one has no process group: every collective is the identity there.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock {

// Collectives must be called by all ranks in the same order. They throw what the backend throws when a rank is lost;
// to_error() (failure.h) knows these. None is thread-safe.
class RankGroup {
 public:
  // A world of one.
  RankGroup() = default;
  // A null group is a world of one.
  RankGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, at::Device device)
      : group_(std::move(group)), device_(device) {}

  int rank() const { return group_ ? group_->getRank() : 0; }
  int world_size() const { return group_ ? group_->getSize() : 1; }

  // Element-wise over the ranks, in place; the result is the same on all of them.
  void sum(std::span<double> values) const;
  void max(std::span<double> values) const;

  // The value of each rank, by rank.
  std::vector<int64_t> gather(int64_t value) const;
  // The same of texts, of any length.
  std::vector<std::string> gather(const std::string& text) const;

  // Of rank 0.
  std::string broadcast(const std::string& text) const;
  void broadcast(const std::vector<at::Tensor>& tensors) const;
  // Rank 0's result, its error included; the result of the others is not looked at.
  Result<std::string> broadcast(const Result<std::string>& result) const;

  // Each rank's tensor, by rank, on rank 0; nothing on the others. All are of one shape and type.
  std::vector<at::Tensor> gather_at_rank_0(const at::Tensor& tensor) const;
  // The other way: into `out` what rank 0 has for this rank; the `tensors` of other ranks are not looked at.
  void scatter_from_rank_0(at::Tensor out, std::vector<at::Tensor> tensors) const;

  // The first failing rank's error on every rank, so that all stop together. On the failing rank its own.
  Result<void> agree(const Result<void>& result) const;

  void barrier() const;

  // Collectives that this rank has started.
  int64_t sequence() const;
  // One more, of which the backend knows nothing.
  void count_collective() const { ++*beside_backend_; }

  // Null in a world of one.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const { return group_; }
  at::Device device() const { return device_; }

 private:
  void reduce(std::span<double> values, c10d::ReduceOp op) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  at::Device device_ = at::kCPU;  // where tensors must be for the backend
  std::shared_ptr<std::atomic<int64_t>> beside_backend_ = std::make_shared<std::atomic<int64_t>>(0);
};

struct GroupOptions {
  int rank = 0;
  int world_size = 1;
  at::Device device = at::kCPU;
  std::chrono::milliseconds timeout{600'000};          // of one collective
  std::chrono::milliseconds connect_timeout{300'000};  // until all ranks are connected
  std::string address;                                 // numeric, of the interface that reaches the other ranks
};

// All ranks of the store call these together. Throw what the backend throws.
RankGroup make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, const GroupOptions& options);
bool nccl_in_build();
// Fails as to_error() (failure.h) classifies what NCCL throws: kPeerLost when a rank ends meanwhile, kUnavailable when
// two ranks share a GPU; kUnavailable, too, in a build without NCCL. All ranks give up the last copy together.
Result<RankGroup> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, const GroupOptions& options);

}  // namespace oarlock
