// Exponential backoff, with injectable sleep and jitter.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>

#include "common/clock.h"

namespace oarlock::kube {

// Returns uniformly distributed numbers in [0, 1). Not thread-safe.
using Random = std::function<double()>;

inline Random seeded_random(uint64_t seed) {
  auto engine = std::make_shared<std::mt19937_64>(seed);
  return [engine] { return std::generate_canonical<double, 53>(*engine); };
}

class Sleeper {
 public:
  virtual ~Sleeper() = default;
  // Sleeps for `duration`. Returns false early if a stop is requested.
  virtual bool sleep(std::chrono::milliseconds duration, const std::stop_token& stop) = 0;
};

class RealSleeper final : public Sleeper {
 public:
  bool sleep(std::chrono::milliseconds duration, const std::stop_token& stop) override {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    changed.wait_for(lock, stop, duration, [] { return false; });
    return !stop.stop_requested();
  }
};

// Delays after failures: initial * 2^n up to the cap, each extended by a random part of up to `jitter` times itself, so
// that many clients do not retry simultaneously. The delay is reset if there was no failure for `reset_after`. The
// defaults are those of client-go's reflector (tools/cache/reflector.go). Not thread-safe.
class Backoff {
 public:
  struct Options {
    std::chrono::milliseconds initial{800};
    std::chrono::milliseconds cap{30000};
    double jitter = 1.0;
    std::chrono::milliseconds reset_after{120000};
  };

  Backoff(Options options, std::shared_ptr<const Clock> clock, Random random)
      : options_(options), clock_(std::move(clock)), random_(std::move(random)) {}

  // Returns the delay after one more failure.
  std::chrono::milliseconds next() {
    const SteadyTime now = clock_->steady();
    if (!last_ || now - *last_ > options_.reset_after) current_ = options_.initial;
    last_ = now;
    const std::chrono::milliseconds base = std::min(current_, options_.cap);
    current_ = std::min(current_ * 2, options_.cap);
    return base + std::chrono::milliseconds(
                      static_cast<int64_t>(static_cast<double>(base.count()) * options_.jitter * random_()));
  }

 private:
  const Options options_;
  const std::shared_ptr<const Clock> clock_;
  const Random random_;
  std::chrono::milliseconds current_{0};
  std::optional<SteadyTime> last_;
};

}  // namespace oarlock::kube
