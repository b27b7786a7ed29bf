// Prefetching of batches to the model's device.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "trainer/data/batch.h"

namespace oarlock {

// Returns batches on the device, in the loader's order. On CUDA, batches are copied ahead of time on a separate stream,
// and the host is kept close to the device, so that it neither fills the device's memory with batches of later steps
// nor runs ahead of a step that never finishes. On the CPU, batches pass through. Not thread-safe.
class DevicePrefetcher {
 public:
  virtual ~DevicePrefetcher() = default;

  // Returns the next batch, or nullopt after the last one. Rethrows the exception of the source. On CUDA the
  // tensors may be used on the stream that is current at the call. The call waits until the device has finished the
  // work that was enqueued on that stream before the last `depth` calls, and throws c10::DistBackendError after
  // `timeout`.
  virtual std::optional<Batch> next() = 0;
};

struct PrefetchOptions {
  bool channels_last = false;  // applied to tensors of four dimensions
  int depth = 2;               // CUDA: maximum number of prefetched batches, and of steps in flight
  // CUDA: limit for one step. A collective in a replayed CUDA graph waits for other ranks without NCCL's watchdog.
  std::optional<std::chrono::milliseconds> timeout{};
};

// Returns nullopt after the last batch. On CUDA the source is called from a thread that ends before the prefetcher
// does.
using BatchSource = std::function<std::optional<Batch>()>;

std::unique_ptr<DevicePrefetcher> make_device_prefetcher(BatchSource source, at::Device device,
                                                         const PrefetchOptions& options = {});

// The implementation for the CPU.
std::unique_ptr<DevicePrefetcher> make_cpu_prefetcher(BatchSource source, const PrefetchOptions& options);

// Moves a single batch to the device.
Batch to_device(Batch batch, at::Device device);

}  // namespace oarlock
