// A limit on the bytes that a group of users may hold in memory at the same time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace oarlock::control {

// Thread-safe.
class ByteBudget {
  struct State {
    explicit State(size_t bytes) : limit(bytes) {}
    const size_t limit;
    std::mutex mutex;
    std::condition_variable released;
    size_t used = 0;
  };

 public:
  explicit ByteBudget(size_t limit) : state_(std::make_shared<State>(limit)) {}

  // Returns its bytes to the budget when it is destroyed. May outlive the budget.
  class Reservation {
   public:
    Reservation(Reservation&& other) noexcept : state_(std::move(other.state_)), bytes_(other.bytes_) {}
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(state_, other.state_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Reservation() {
      if (state_ == nullptr) return;
      {
        const std::lock_guard lock(state_->mutex);
        state_->used -= bytes_;
      }
      state_->released.notify_all();
    }

   private:
    friend class ByteBudget;
    Reservation(std::shared_ptr<State> state, size_t bytes) : state_(std::move(state)), bytes_(bytes) {
      state_->used += bytes;  // with the mutex held
    }

    std::shared_ptr<State> state_;
    size_t bytes_;
  };

  // Blocks until the bytes fit. A reservation larger than the whole budget is granted while no other one is held. A
  // thread that holds a reservation must not acquire a second one, because two such threads could wait for each other.
  Reservation acquire(size_t bytes) {
    std::unique_lock lock(state_->mutex);
    state_->released.wait(lock, [&] { return state_->used == 0 || fits(bytes); });
    return Reservation(state_, bytes);
  }

  // Returns nothing if the bytes do not fit now.
  std::optional<Reservation> try_acquire(size_t bytes) {
    const std::lock_guard lock(state_->mutex);
    return fits(bytes) ? std::optional<Reservation>(Reservation(state_, bytes)) : std::nullopt;
  }

  size_t used() const {
    const std::lock_guard lock(state_->mutex);
    return state_->used;
  }

 private:
  bool fits(size_t bytes) const { return bytes <= state_->limit && state_->used <= state_->limit - bytes; }

  const std::shared_ptr<State> state_;
};

}  // namespace oarlock::control
