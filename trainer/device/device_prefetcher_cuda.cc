#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <variant>

#include "trainer/device/device.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

// A batch whose copy has been enqueued on the prefetch stream; `copied` is recorded after the copy.
struct Copied {
  Batch batch;
  std::shared_ptr<at::cuda::CUDAEvent> copied;
};

class CudaPrefetcher final : public DevicePrefetcher {
 public:
  CudaPrefetcher(BatchSource source, at::Device device, const PrefetchOptions& options)
      : source_(std::move(source)),
        device_(device),
        options_(options),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
        thread_([this](const std::stop_token& stop) { copy_ahead(stop); }) {}

  ~CudaPrefetcher() override {
    thread_ = {};  // stops and joins
    for (const InFlight& item : in_flight_) item.copied->synchronize();
  }

  std::optional<Batch> next() override {
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device_.index());
    limit_steps_in_flight(current);
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !queue_.empty(); });
    if (const auto* error = std::get_if<std::exception_ptr>(&queue_.front())) std::rethrow_exception(*error);
    if (std::holds_alternative<End>(queue_.front())) return std::nullopt;
    Copied item = std::move(std::get<Copied>(queue_.front()));
    queue_.pop_front();
    lock.unlock();
    room_.notify_one();
    item.copied->block(current);
    // The memory belongs to the prefetch stream; the allocator may reuse it only when the current stream no longer
    // uses it.
    for (auto& [name, tensor] : item.batch.tensors) {
      c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), current);
    }
    return std::move(item.batch);
  }

 private:
  struct End {};
  // Keeps a host batch alive until its copy has finished, because the loader reuses the memory of released batches.
  struct InFlight {
    Batch host;
    std::shared_ptr<at::cuda::CUDAEvent> copied;
  };
  using Item = std::variant<Copied, End, std::exception_ptr>;

  // Waits for the step that was started `depth` calls ago, while later steps keep the device busy. Polls, so that the
  // wait can time out.
  void limit_steps_in_flight(c10::cuda::CUDAStream current) {
    steps_.emplace_back().record(current);
    if (static_cast<int>(steps_.size()) <= options_.depth) return;
    poll_until([this] { return steps_.front().query(); }, options_.timeout);
    steps_.pop_front();
  }

  void copy_ahead(const std::stop_token& stop) {
    for (bool more = true; more;) {
      Item item = End{};
      try {
        c10::cuda::set_device(device_.index());
        const c10::cuda::CUDAStreamGuard guard(stream_);
        while (!in_flight_.empty() && in_flight_.front().copied->query()) in_flight_.pop_front();
        if (std::optional<Batch> batch = source_()) item = copy(std::move(*batch));
      } catch (...) {
        item = std::current_exception();
      }
      more = std::holds_alternative<Copied>(item);
      std::unique_lock lock(mutex_);
      if (!room_.wait(lock, stop, [&] { return static_cast<int>(queue_.size()) < options_.depth; })) return;
      queue_.push_back(std::move(item));
      lock.unlock();
      ready_.notify_one();
    }
  }

  // Only copies from pinned memory overlap with kernels. The layout is changed on the device, which is faster.
  Copied copy(Batch host) {
    Batch on_device{.tensors = {}, .ids = host.ids};
    for (auto& [name, tensor] : host.tensors) {
      if (!tensor.is_pinned()) tensor = tensor.pin_memory();
      const at::Tensor copy = tensor.to(device_, /*non_blocking=*/true);
      on_device.tensors[name] = options_.channels_last ? channels_last(copy) : copy;
    }
    auto copied = std::make_shared<at::cuda::CUDAEvent>();
    copied->record(stream_);
    in_flight_.push_back({std::move(host), copied});
    return {std::move(on_device), std::move(copied)};
  }

  BatchSource source_;
  at::Device device_;
  PrefetchOptions options_;
  c10::cuda::CUDAStream stream_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::condition_variable_any room_;
  std::deque<Item> queue_;
  std::deque<InFlight> in_flight_;         // used by thread_ only
  std::deque<at::cuda::CUDAEvent> steps_;  // used by the caller only: recorded at each call of next()
  std::jthread thread_;                    // last, so that it is joined before the other members are destroyed
};

}  // namespace

std::unique_ptr<DevicePrefetcher> make_device_prefetcher(BatchSource source, at::Device device,
                                                         const PrefetchOptions& options) {
  if (!device.is_cuda()) return make_cpu_prefetcher(std::move(source), options);
  return std::make_unique<CudaPrefetcher>(std::move(source), device, options);
}

}  // namespace oarlock
