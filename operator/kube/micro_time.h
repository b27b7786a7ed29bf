// metav1.MicroTime: RFC 3339 in UTC with six digits of a second. common/clock.h reads it.
#pragma once

#include <fmt/format.h>

#include <string>

#include "common/clock.h"

namespace oarlock::kube {

inline std::string to_micro_time(SystemTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  std::string text = to_rfc3339(time);
  text.pop_back();
  return fmt::format("{}.{:06}Z", text, std::chrono::duration_cast<std::chrono::microseconds>(time - whole).count());
}

}  // namespace oarlock::kube
