// PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727): a gradient M travels as two thin factors, M ~ P Q^T.
// The algorithm is that of powerSGD_hook in torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "trainer/config/ddp.h"

namespace oarlock {

// Its state (factors, what compression lost so far) is this rank's own and not in checkpoints: a resumed run starts
// with plain averaging again, for start_powerSGD_iter steps.
class PowerSgdHook final : public c10d::CommHookInterface {
 public:
  PowerSgdHook(const PowerSgdConfig& config, c10::intrusive_ptr<c10d::ProcessGroup> group);

  // Blocks until the factors of the bucket are reduced: with chained futures the ranks' collectives could be called in
  // different orders, which Gloo matches by order.
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  // Of one bucket, flat, so that one collective takes all of its matrices.
  struct Factors {
    at::Tensor p;
    at::Tensor q;
  };
  struct Matrix {
    at::Tensor gradient;  // [n, m], a view of the bucket
    at::Tensor p;         // [n, rank], a view of Factors::p
    at::Tensor q;         // [m, rank], a view of Factors::q
  };

  int64_t rank_of(const at::Tensor& matrix) const;
  bool worth_compressing(const at::Tensor& matrix) const;
  std::vector<Matrix> lay_out(const std::vector<at::Tensor>& matrices, size_t bucket, bool& fresh);
  void start_from(const std::vector<Matrix>& matrices, bool fresh);
  void orthogonalize(const at::Tensor& matrix) const;
  void compress(c10d::GradBucket& bucket);
  uint64_t next_seed();

  PowerSgdConfig config_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::mt19937 random_;  // numpy.random.RandomState's generator
  int64_t iteration_ = 0;
  std::map<size_t, at::Tensor> errors_;  // by bucket
  std::map<size_t, Factors> factors_;    // by bucket
};

}  // namespace oarlock
