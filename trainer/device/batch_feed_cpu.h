// The feed where the model is on the CPU: batches pass through.
#pragma once

#include <utility>

#include "trainer/device/batch_feed.h"
#include "trainer/nn/memory_format.h"

namespace oarlock {

class CpuBatchFeed final : public BatchFeed {
 public:
  CpuBatchFeed(BatchSource source, const BatchFeedOptions& options) : source_(std::move(source)), options_(options) {}

  std::optional<Batch> next() override {
    std::optional<Batch> batch = source_();
    if (batch && options_.channels_last) {
      for (auto& [name, tensor] : batch->tensors) tensor = channels_last(tensor);
    }
    return batch;
  }

 private:
  BatchSource source_;
  BatchFeedOptions options_;
};

}  // namespace oarlock
