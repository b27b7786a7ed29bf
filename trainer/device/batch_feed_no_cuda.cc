// In place of batch_feed_cuda.cc in a build without OARLOCK_CUDA.
#include "trainer/device/batch_feed_cpu.h"

namespace oarlock {

std::unique_ptr<BatchFeed> make_batch_feed(BatchSource source, at::Device, const BatchFeedOptions& options) {
  return std::make_unique<CpuBatchFeed>(std::move(source), options);
}

}  // namespace oarlock
