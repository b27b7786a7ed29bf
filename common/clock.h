// Time is passed in, so that tests own it.
#pragma once

#include <chrono>
#include <string>

namespace oarlock {

using SystemTime = std::chrono::system_clock::time_point;
using SteadyTime = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual SystemTime now() const = 0;     // wall clock: for what people and other machines read
  virtual SteadyTime steady() const = 0;  // never jumps: for durations and deadlines
};

class RealClock final : public Clock {
 public:
  SystemTime now() const override { return std::chrono::system_clock::now(); }
  SteadyTime steady() const override { return std::chrono::steady_clock::now(); }
};

// RFC 3339 in UTC, whole seconds, as Kubernetes' metav1.Time: "2026-11-21T10:11:12Z".
std::string to_rfc3339(SystemTime time);
// Accepts whole and fractional seconds and "Z" or an offset. Times are clamped to 1900..2150: sums cannot overflow.
bool from_rfc3339(const std::string& text, SystemTime& time);  // false: not a time

}  // namespace oarlock
