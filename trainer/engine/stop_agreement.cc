#include "trainer/engine/stop_agreement.h"

#include <algorithm>
#include <array>

namespace oarlock {
namespace {
constexpr double kIntervalSeconds = 0.5;
// Bounds the delay of a stop when units become slower from one agreement to the next.
constexpr double kLongestInterval = 200;  // units
}  // namespace

bool StopAgreement::agree(bool wish, double& seconds) {
  std::array<double, 2> values = {wish || requested() ? 1.0 : 0.0, seconds};
  group_.max(values);
  seconds = values[1];
  agreed_ = agreed_ || values[0] > 0;
  return agreed_;
}

bool StopAgreement::agree(bool wish) {
  double seconds = 0;
  return agree(wish, seconds);
}

bool StopPace::after_unit(bool wish) {
  if (agreement_->group().world_size() == 1) return agreement_->agree(wish);  // without a collective
  if (++units_ < next_) return false;
  double slowest = seconds_per_unit_;
  const bool stop = agreement_->agree(wish, slowest);
  const SteadyTime now = agreement_->clock().steady();
  seconds_per_unit_ = std::chrono::duration<double>(now - since_).count() / static_cast<double>(units_);
  next_ = slowest > 0 ? static_cast<int64_t>(std::clamp(kIntervalSeconds / slowest, 1.0, kLongestInterval)) : 1;
  since_ = now;
  units_ = 0;
  return stop;
}

}  // namespace oarlock
