// PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727): a gradient M travels as two thin factors, M ~ P Q^T.
// The algorithm is that of powerSGD_hook in torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/distributed/powersgd_state.h"

namespace oarlock {

class PowerSgdHook final : public c10d::CommHookInterface {
 public:
  // The state is of this reducer's buckets.
  PowerSgdHook(std::shared_ptr<PowerSgdState> state, c10::intrusive_ptr<c10d::ProcessGroup> group);

  // Blocks until the factors of the bucket are reduced: with chained futures the ranks' collectives could be called in
  // different orders, which Gloo matches by order.
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  struct Matrix {
    at::Tensor gradient;  // [n, m], a view of the bucket
    at::Tensor p;         // [n, rank], a view of the bucket's factors
    at::Tensor q;         // [m, rank], a view of the bucket's factors
  };

  int64_t rank_of(const at::Tensor& matrix) const;
  bool worth_compressing(const at::Tensor& matrix) const;
  std::vector<Matrix> lay_out(const std::vector<at::Tensor>& matrices, size_t bucket, bool& fresh);
  void start_from(const std::vector<Matrix>& matrices, bool fresh);
  void orthogonalize(const at::Tensor& matrix) const;
  void compress(c10d::GradBucket& bucket);

  std::shared_ptr<PowerSgdState> state_;
  const PowerSgdConfig& config_;  // of the state
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace oarlock
