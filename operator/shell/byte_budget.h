// Limits the memory of the requests that are in flight at one time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace oarlock::control {

// Thread-safe. A thread that holds a share must not take another one.
class ByteBudget {
 public:
  explicit ByteBudget(size_t limit) : limit_(limit) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // Returned to the budget when it is destroyed.
  class Share {
   public:
    Share(ByteBudget& budget, size_t bytes) : budget_(budget), bytes_(bytes) {}
    ~Share() { budget_.give_back(bytes_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

   private:
    ByteBudget& budget_;
    const size_t bytes_;
  };

  // Blocks until the bytes fit. A share that is larger than the whole budget is given when no other one is held.
  Share take(size_t bytes) {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return used_ == 0 || used_ + bytes <= limit_; });
    used_ += bytes;
    return Share(*this, bytes);
  }

 private:
  void give_back(size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      used_ -= bytes;
    }
    returned_.notify_all();
  }

  const size_t limit_;
  std::mutex mutex_;
  std::condition_variable returned_;
  size_t used_ = 0;
};

}  // namespace oarlock::control
