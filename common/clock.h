// An injectable clock, so that tests control time; and times in the format of Kubernetes.
#pragma once

#include <chrono>
#include <string>

namespace oarlock {

using SystemTime = std::chrono::system_clock::time_point;
using SteadyTime = std::chrono::steady_clock::time_point;

// Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // The wall clock, for times that users and other machines read.
  virtual SystemTime now() const = 0;
  // The monotonic clock, for durations and deadlines.
  virtual SteadyTime steady() const = 0;
};

class RealClock final : public Clock {
 public:
  SystemTime now() const override { return std::chrono::system_clock::now(); }
  SteadyTime steady() const override { return std::chrono::steady_clock::now(); }
};

// Formats a time as Kubernetes' metav1.Time does: RFC 3339 in UTC with whole seconds, "2026-11-21T10:11:12Z".
std::string to_rfc3339(SystemTime time);

// Formats a time as Kubernetes' metav1.MicroTime does, with six digits of a second: "2026-11-21T10:11:12.000013Z".
std::string to_rfc3339_micro(SystemTime time);

// Parses an RFC 3339 time with whole or fractional seconds and "Z" or an offset. Returns false, and leaves `time`
// unchanged, if the text is not a time. Times are clamped to the years 1900 to 2150, so that adding a duration of the
// API cannot overflow.
bool from_rfc3339(const std::string& text, SystemTime& time);

}  // namespace oarlock
