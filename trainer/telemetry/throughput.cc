#include "trainer/telemetry/throughput.h"

#include <cmath>

namespace oarlock {
namespace {
constexpr double kWindowSeconds = 10;
}

void Throughput::add_step(int64_t samples, double seconds) {
  const double decay = std::exp(-seconds / kWindowSeconds);
  samples_ = samples_ * decay + static_cast<double>(samples);
  steps_ = steps_ * decay + 1;
  seconds_ = seconds_ * decay + seconds;
}

}  // namespace oarlock
