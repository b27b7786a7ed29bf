#include "trainer/data/loader.h"

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

class Loader::Impl {
 public:
  Impl(const Dataset& dataset, std::vector<int64_t> indices, const LoaderOptions& options)
      : dataset_(dataset), options_(options) {
    if (options.batch_size < 1) throw std::invalid_argument("loader: batch_size must be at least 1");
    if (options.threads < 0) throw std::invalid_argument("loader: threads must not be negative");
    if (options.prefetch < 1) throw std::invalid_argument("loader: prefetch must be at least 1");
    slots_.resize(static_cast<size_t>(options.threads) * static_cast<size_t>(options.prefetch));
    begin(std::move(indices), options.seed);
    for (int i = 0; i < options.threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { make_batches(stop); });
    }
  }

  void begin(std::vector<int64_t> indices, uint64_t seed) {
    std::unique_lock lock(mutex_);
    next_ = batches_;  // no thread takes another one
    ready_.wait(lock, [&] { return under_way_ == 0; });
    for (Slot& slot : slots_) {
      if (auto* batch = std::get_if<Batch>(&slot)) spares_.push_back(std::move(*batch));
      slot = std::monostate{};
    }
    ready_count_ = 0;
    indices_ = std::move(indices);
    seed_ = seed;
    batches_ = batch_count(static_cast<int64_t>(indices_.size()), options_.batch_size, options_.drop_last);
    next_ = delivered_ = 0;
    lock.unlock();
    room_.notify_all();
  }

  std::optional<Batch> next() {
    std::unique_lock lock(mutex_);
    // Memory that the caller still holds is not filled again: allocate() sees to that.
    if (held_) spares_.push_back(std::move(*std::exchange(held_, std::nullopt)));
    if (delivered_ == batches_) return std::nullopt;
    held_ = slots_.empty() ? make(delivered_, take_spare()) : take_ready(lock);
    ++delivered_;
    lock.unlock();
    room_.notify_one();
    return held_;
  }

  int64_t batches() const { return batches_; }
  int64_t ready() const { return ready_count_; }
  int64_t capacity() const { return static_cast<int64_t>(slots_.size()); }

 private:
  using Slot = std::variant<std::monostate, Batch, std::exception_ptr>;

  Batch take_spare() {
    if (spares_.empty()) {
      Batch batch;
      batch.pinned = options_.pin_memory;
      return batch;
    }
    Batch batch = std::move(spares_.back());
    spares_.pop_back();
    return batch;
  }

  Batch take_ready(std::unique_lock<std::mutex>& lock) {
    Slot& slot = slots_[static_cast<size_t>(delivered_) % slots_.size()];
    ready_.wait(lock, [&] { return !std::holds_alternative<std::monostate>(slot); });
    if (const auto* error = std::get_if<std::exception_ptr>(&slot)) std::rethrow_exception(*error);
    Batch batch = std::move(std::get<Batch>(slot));
    slot = std::monostate{};
    --ready_count_;
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
      ++under_way_;
      Batch spare = take_spare();
      lock.unlock();
      Slot made;
      try {
        made = make(number, std::move(spare));
      } catch (...) {
        made = std::current_exception();
      }
      lock.lock();
      slots_[static_cast<size_t>(number) % slots_.size()] = std::move(made);
      ++ready_count_;
      --under_way_;
      ready_.notify_one();
    }
  }

  const Dataset& dataset_;
  const LoaderOptions options_;

  // Batch b lies in slot b % slots. Everything below is written under the lock; the caller of next() and begin() and
  // the thread that makes a batch read indices and seed without it, which change only while nothing is under way.
  std::mutex mutex_;
  std::condition_variable ready_;     // a slot was filled
  std::condition_variable_any room_;  // a slot was emptied, or a sequence begun
  std::vector<int64_t> indices_;
  uint64_t seed_ = 0;
  int64_t batches_ = 0;
  std::vector<Slot> slots_;
  std::vector<Batch> spares_;             // to be filled again
  std::optional<Batch> held_;             // given out last
  int64_t next_ = 0;                      // first batch that no thread has taken
  int64_t delivered_ = 0;                 // batches that next() gave out
  std::atomic<int64_t> ready_count_ = 0;  // slots that are filled; read without the lock
  int64_t under_way_ = 0;                 // batches that threads are making
  std::vector<std::jthread> threads_;     // last: stopped and joined before the rest goes
};

Loader::Loader(const Dataset& dataset, std::vector<int64_t> indices, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, std::move(indices), options)) {}
Loader::~Loader() = default;

void Loader::begin(std::vector<int64_t> indices, uint64_t seed) { impl_->begin(std::move(indices), seed); }
std::optional<Batch> Loader::next() { return impl_->next(); }
int64_t Loader::batches() const { return impl_->batches(); }
int64_t Loader::ready() const { return impl_->ready(); }
int64_t Loader::capacity() const { return impl_->capacity(); }

}  // namespace oarlock
