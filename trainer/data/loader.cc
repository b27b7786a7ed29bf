#include "trainer/data/loader.h"

#include <algorithm>
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
      : dataset_(dataset), indices_(std::move(indices)), options_(options) {
    if (options.batch_size < 1) throw std::invalid_argument("loader: batch_size must be at least 1");
    if (options.threads < 0) throw std::invalid_argument("loader: threads must not be negative");
    if (options.prefetch < 1) throw std::invalid_argument("loader: prefetch must be at least 1");
    batches_ = batch_count(static_cast<int64_t>(indices_.size()), options.batch_size, options.drop_last);
    if (options.threads == 0) return;
    slots_.resize(static_cast<size_t>(options.threads) * static_cast<size_t>(options.prefetch));
    const int64_t useful = std::min<int64_t>(options.threads, batches_);
    for (int64_t i = 0; i < useful; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { make_batches(stop); });
    }
  }

  std::optional<Batch> next() {
    if (delivered_ == batches_) return std::nullopt;
    if (slots_.empty()) {
      Batch batch = make(delivered_);
      ++delivered_;
      return batch;
    }
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[static_cast<size_t>(delivered_) % slots_.size()];
    ready_.wait(lock, [&] { return !std::holds_alternative<std::monostate>(slot); });
    if (const auto* error = std::get_if<std::exception_ptr>(&slot)) std::rethrow_exception(*error);
    Batch batch = std::move(std::get<Batch>(slot));
    slot = std::monostate{};
    ++delivered_;
    lock.unlock();
    room_.notify_one();
    return batch;
  }

  int64_t batches() const { return batches_; }

 private:
  using Slot = std::variant<std::monostate, Batch, std::exception_ptr>;

  Batch make(int64_t number) const {
    const auto begin = static_cast<size_t>(number * options_.batch_size);
    const size_t size = std::min(static_cast<size_t>(options_.batch_size), indices_.size() - begin);
    return dataset_.make_batch(std::span(indices_).subspan(begin, size), options_.seed);
  }

  void make_batches(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto capacity = static_cast<int64_t>(slots_.size());
      const bool may_go = room_.wait(lock, stop, [&] { return next_ == batches_ || next_ < delivered_ + capacity; });
      if (!may_go || stop.stop_requested() || next_ == batches_) return;
      const int64_t number = next_++;
      if (next_ == batches_) room_.notify_all();  // nothing is left for the threads that wait
      lock.unlock();
      Slot made;
      try {
        made = make(number);
      } catch (...) {
        made = std::current_exception();
      }
      lock.lock();
      slots_[static_cast<size_t>(number) % slots_.size()] = std::move(made);
      ready_.notify_one();
    }
  }

  const Dataset& dataset_;
  const std::vector<int64_t> indices_;
  const LoaderOptions options_;
  int64_t batches_ = 0;

  // Batch b lies in slot b % slots. The consumer owns delivered_ (written under the lock); the rest is under the lock.
  std::mutex mutex_;
  std::condition_variable ready_;     // a slot was filled
  std::condition_variable_any room_;  // a slot was emptied
  std::vector<Slot> slots_;
  int64_t next_ = 0;                   // first batch that no thread has taken
  int64_t delivered_ = 0;              // batches that next() gave out
  std::vector<std::jthread> threads_;  // last: stopped and joined before the rest goes
};

Loader::Loader(const Dataset& dataset, std::vector<int64_t> indices, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, std::move(indices), options)) {}
Loader::~Loader() = default;

std::optional<Batch> Loader::next() { return impl_->next(); }
int64_t Loader::batches() const { return impl_->batches(); }

}  // namespace oarlock
