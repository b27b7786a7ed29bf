#include "trainer/data/data_loader.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>

namespace oarlock {

int64_t batch_count(int64_t samples, int64_t batch_size, bool drop_last) {
  return drop_last ? samples / batch_size : (samples + batch_size - 1) / batch_size;
}

class DataLoader::Impl {
 public:
  Impl(const Dataset& dataset, std::vector<int64_t> indices, const DataLoaderOptions& options)
      : dataset_(dataset), options_(options) {
    if (options.batch_size < 1) throw std::invalid_argument("loader: batch_size must be at least 1");
    if (options.threads < 0) throw std::invalid_argument("loader: threads must not be negative");
    if (options.prefetch < 1) throw std::invalid_argument("loader: prefetch must be at least 1");
    slots_.resize(static_cast<size_t>(options.threads) * static_cast<size_t>(options.prefetch));
    reset(std::move(indices), options.seed);
    for (int i = 0; i < options.threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { make_batches(stop); });
    }
  }

  void reset(std::vector<int64_t> indices, uint64_t seed) {
    std::unique_lock lock(mutex_);
    next_ = batches_;  // keeps the threads from starting another batch
    ready_.wait(lock, [&] { return in_progress_ == 0; });
    for (Slot& slot : slots_) {
      if (auto* batch = std::get_if<Batch>(&slot)) free_batches_.push_back(std::move(*batch));
      slot = std::monostate{};
    }
    prefetched_ = 0;
    indices_ = std::move(indices);
    seed_ = seed;
    batches_ = batch_count(static_cast<int64_t>(indices_.size()), options_.batch_size, options_.drop_last);
    next_ = delivered_ = 0;
    lock.unlock();
    room_.notify_all();
  }

  std::optional<Batch> next() {
    std::unique_lock lock(mutex_);
    // Batch::allocate() does not reuse memory that the caller still owns.
    if (held_) free_batches_.push_back(std::move(*std::exchange(held_, std::nullopt)));
    if (delivered_ == batches_) return std::nullopt;
    held_ = slots_.empty() ? make(delivered_, take_free_batch()) : take_prefetched(lock);
    ++delivered_;
    lock.unlock();
    room_.notify_one();
    return held_;
  }

  int64_t batches() const { return batches_; }
  int64_t prefetched() const { return prefetched_; }
  int64_t prefetch_capacity() const { return static_cast<int64_t>(slots_.size()); }

 private:
  using Slot = std::variant<std::monostate, Batch, std::exception_ptr>;

  Batch take_free_batch() {
    if (free_batches_.empty()) {
      Batch batch;
      batch.pinned = options_.pin_memory;
      return batch;
    }
    Batch batch = std::move(free_batches_.back());
    free_batches_.pop_back();
    return batch;
  }

  Batch take_prefetched(std::unique_lock<std::mutex>& lock) {
    Slot& slot = slots_[static_cast<size_t>(delivered_) % slots_.size()];
    ready_.wait(lock, [&] { return !std::holds_alternative<std::monostate>(slot); });
    if (const auto* error = std::get_if<std::exception_ptr>(&slot)) std::rethrow_exception(*error);
    Batch batch = std::move(std::get<Batch>(slot));
    slot = std::monostate{};
    --prefetched_;
    return batch;
  }

  Batch make(int64_t number, Batch batch) const {
    const auto begin = static_cast<size_t>(number * options_.batch_size);
    const size_t size = std::min(static_cast<size_t>(options_.batch_size), indices_.size() - begin);
    const auto indices = std::span(indices_).subspan(begin, size);
    batch.ids.assign(indices.begin(), indices.end());
    dataset_.make_batch(indices, seed_, batch);
    return batch;
  }

  void make_batches(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto capacity = static_cast<int64_t>(slots_.size());
      room_.wait(lock, stop, [&] { return next_ < batches_ && next_ < delivered_ + capacity; });
      if (stop.stop_requested()) return;
      const int64_t number = next_++;
      ++in_progress_;
      Batch batch = take_free_batch();
      lock.unlock();
      Slot made;
      try {
        made = make(number, std::move(batch));
      } catch (...) {
        made = std::current_exception();
      }
      lock.lock();
      slots_[static_cast<size_t>(number) % slots_.size()] = std::move(made);
      ++prefetched_;
      --in_progress_;
      ready_.notify_one();
    }
  }

  const Dataset& dataset_;
  const DataLoaderOptions options_;

  // Batch b is stored in slot b % slots. Everything below is written under the lock. indices_ and seed_ are read
  // without the lock by the caller of next() and by the threads that create batches; they change only while no batch is
  // in progress.
  std::mutex mutex_;
  std::condition_variable ready_;     // a slot was filled
  std::condition_variable_any room_;  // a slot was emptied, or a sequence was started
  std::vector<int64_t> indices_;
  uint64_t seed_ = 0;
  int64_t batches_ = 0;
  std::vector<Slot> slots_;
  std::vector<Batch> free_batches_;      // whose memory is reused
  std::optional<Batch> held_;            // returned last
  int64_t next_ = 0;                     // the first batch that no thread has started
  int64_t delivered_ = 0;                // batches that next() returned
  std::atomic<int64_t> prefetched_ = 0;  // slots that are filled; read without the lock
  int64_t in_progress_ = 0;              // batches that threads are creating
  std::vector<std::jthread> threads_;    // last member: stopped and joined before the others are destroyed
};

DataLoader::DataLoader(const Dataset& dataset, std::vector<int64_t> indices, const DataLoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, std::move(indices), options)) {}
DataLoader::~DataLoader() = default;

void DataLoader::reset(std::vector<int64_t> indices, uint64_t seed) { impl_->reset(std::move(indices), seed); }
std::optional<Batch> DataLoader::next() { return impl_->next(); }
int64_t DataLoader::batches() const { return impl_->batches(); }
int64_t DataLoader::prefetched() const { return impl_->prefetched(); }
int64_t DataLoader::prefetch_capacity() const { return impl_->prefetch_capacity(); }

}  // namespace oarlock
