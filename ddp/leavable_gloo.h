// A Gloo backend whose collectives in progress can be failed.
//
// After a broken connection, Gloo fails the collectives that wait for it, except for one whose message was received or
// sent in part: Pair::signalException() (gloo/transport/tcp/pair.cc) fails the queued operations, but neither the one
// that is being received nor unbound buffers that are being sent. These collectives would wait until their time-out.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <memory>

namespace oarlock {

// Collectives of other kinds than those below are not used, and cannot be failed. Like its base, not thread-safe except
// for fail_pending().
class LeavableGloo final : public c10d::ProcessGroupGloo {
 public:
  LeavableGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~LeavableGloo() override;

  // Fails the collectives in progress that have not ended after `timeout`, and all later ones. Call this after the
  // connections were shut down: then Gloo writes to no tensor anymore. It keeps the tensors of the failed collectives,
  // and a thread of this backend, until their time-out; the backend must therefore not own what the process needs
  // elsewhere, such as the server of its store. Any thread may call this.
  void fail_pending(std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

 private:
  class LeavableWork;
  struct Pending;

  // Calls `start` and returns its work as one that fail_pending() can fail.
  template <typename Start>
  c10::intrusive_ptr<c10d::Work> begin(const Start& start);

  const std::shared_ptr<Pending> pending_;
};

}  // namespace oarlock
