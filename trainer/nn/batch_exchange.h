// What a module needs of the other ranks to compute over the joined batch. trainer/distributed implements it.
#pragma once

#include <ATen/core/Tensor.h>

namespace oarlock {

// Both are collectives: all ranks call them in the same order. They throw what the backend throws.
class BatchExchange {
 public:
  virtual ~BatchExchange() = default;

  // `own` [n] of every rank, by rank: [ranks, n].
  virtual at::Tensor gather(const at::Tensor& own) const = 0;

  // The sum over the ranks, in place.
  virtual void sum(at::Tensor& values) const = 0;
};

}  // namespace oarlock
