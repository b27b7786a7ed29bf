// Batches on the model's device, in the loader's order. On CUDA they are copied ahead of time, on a stream of their
// own, and the host is kept near the device: it neither fills the device's memory with batches of steps to come, nor
// runs past a step that never ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "trainer/data/batch.h"

namespace oarlock {

class BatchFeed {
 public:
  virtual ~BatchFeed() = default;

  // The next batch, or nothing after the last. Throws what the source threw for this batch. On CUDA the tensors may be
  // used on the stream that is current at the call; waits until the device has done what was put on that stream before
  // the last `ahead` calls, and throws c10::DistBackendError when that takes longer than `patience`.
  virtual std::optional<Batch> next() = 0;
};

struct BatchFeedOptions {
  bool channels_last = false;  // tensors of four dimensions
  int ahead = 2;               // CUDA: batches that may be under way or lie ready, and steps that may be under way
  // CUDA: for a step. A collective in a replayed CUDA graph waits for another rank where no watchdog of NCCL's looks.
  std::optional<std::chrono::milliseconds> patience{};
};

// Calls the source until it gives nothing; on CUDA from a thread of the feed, which ends before the feed does.
using BatchSource = std::function<std::optional<Batch>()>;
std::unique_ptr<BatchFeed> make_batch_feed(BatchSource source, at::Device device, const BatchFeedOptions& options = {});

}  // namespace oarlock
