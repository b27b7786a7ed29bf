// Gradients are averaged as they are, on the CPU, by ranks that share memory: each puts its part there and adds up the
// parts of all. The sum is in the order of the ranks, so all get the same bits, however gradients lie in buckets.
//
// Buckets wait until the backward pass is over. It has a core for each thread already, so averaging beside it would
// take its time; and ranks that wait for each other within it could wait for ever, where one is in another collective
// of the same pass (SyncBatchNorm's) and their graphs differ.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "trainer/distributed/shared_memory.h"

namespace oarlock {

class SharedMemoryAverage {
 public:
  // Called by all ranks of the group, which must outlive it. Null on all of them as SharedMemory::open().
  static std::shared_ptr<SharedMemoryAverage> open(const RankGroup& group);

  // From now on buckets are collected.
  void backward_begins() { collects_ = true; }
  // Averages what was collected. From now on a bucket is averaged as it comes.
  void backward_ends();

  // `gradients` is one-dimensional and contiguous, and becomes the mean over the ranks. The future holds it when that
  // is done.
  c10::intrusive_ptr<c10::ivalue::Future> add(at::Tensor gradients);

 private:
  struct Bucket {
    at::Tensor gradients;
    c10::intrusive_ptr<c10::ivalue::Future> done;
  };

  SharedMemoryAverage(const RankGroup& group, std::unique_ptr<SharedMemory> memory);
  void average(const Bucket& bucket);
  void average_part(at::Tensor part);
  at::Tensor slot(int rank, const at::Tensor& like) const;

  const RankGroup& group_;
  std::unique_ptr<SharedMemory> memory_;
  std::vector<Bucket> collected_;
  bool collects_ = false;
  int turn_ = 0;  // the slot to be written next
};

}  // namespace oarlock
