#include "common/clock.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>

namespace oarlock {
namespace {

// SystemTime ends in 2262: any period of the API can be added to a time that somebody else wrote.
constexpr int64_t kEarliest = -2208988800;  // 1900-01-01
constexpr int64_t kLatest = 5680281600;     // 2150-01-01

}  // namespace

std::string to_rfc3339(SystemTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

bool from_rfc3339(const std::string& text, SystemTime& time) {
  std::tm parts{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return false;
  long nanoseconds = 0;
  if (*rest == '.') {
    int digits = 0;
    for (++rest; *rest >= '0' && *rest <= '9'; ++rest, ++digits) {
      if (digits < 9) nanoseconds = nanoseconds * 10 + (*rest - '0');
    }
    if (digits == 0) return false;
    for (; digits < 9; ++digits) nanoseconds *= 10;
  }
  long offset_minutes = 0;
  if (*rest == 'Z' || *rest == 'z') {
    ++rest;
  } else {
    char sign = 0;
    int hours = 0;
    int minutes = 0;
    int used = 0;
    if (std::sscanf(rest, "%c%2d:%2d%n", &sign, &hours, &minutes, &used) != 3 || used != 6) return false;
    if (sign != '+' && sign != '-') return false;
    offset_minutes = (hours * 60L + minutes) * (sign == '-' ? -1 : 1);
    rest += used;
  }
  if (*rest != '\0') return false;
  const int64_t seconds = int64_t{timegm(&parts)} - offset_minutes * 60;
  time = std::chrono::system_clock::from_time_t(std::clamp(seconds, kEarliest, kLatest)) +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(nanoseconds));
  return true;
}

}  // namespace oarlock
