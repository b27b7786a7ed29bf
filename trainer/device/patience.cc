#include "trainer/device/patience.h"

#include <c10/util/Exception.h>

#include <thread>

namespace oarlock {
namespace {

constexpr std::chrono::microseconds kPollInterval(50);

}  // namespace

void poll_with_patience(const std::function<bool()>& is_done, Patience patience) {
  const auto begin = std::chrono::steady_clock::now();
  while (!is_done()) {
    TORCH_CHECK_WITH(DistBackendError, !patience || std::chrono::steady_clock::now() - begin < *patience,
                     "the device did not end a step within ", static_cast<double>(patience->count()) / 1000,
                     " s, the timeout of a collective");
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace oarlock
