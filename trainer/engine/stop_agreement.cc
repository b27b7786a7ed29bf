#include "trainer/engine/stop_agreement.h"

#include <algorithm>
#include <array>

namespace oarlock {
namespace {
constexpr double kIntervalSeconds = 0.5;
constexpr double kLongestInterval = 1000;  // steps
}  // namespace

bool StopAgreement::reached(int64_t step, double step_seconds, bool wish) {
  const bool mine = wish || stop_.raised();
  if (group_.world_size() == 1) return mine;
  if (step < next_step_) return false;
  std::array<double, 2> values = {mine ? 1.0 : 0.0, step_seconds};
  group_.max(values);
  next_step_ =
      step + static_cast<int64_t>(std::clamp(kIntervalSeconds / std::max(values[1], 1e-6), 1.0, kLongestInterval));
  return values[0] > 0;
}

}  // namespace oarlock
