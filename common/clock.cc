#include "common/clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace oarlock {
namespace {

// SystemTime ends in 2262, so any duration of the API can be added to a clamped time.
constexpr int64_t kEarliest = -2208988800;  // 1900-01-01
constexpr int64_t kLatest = 5680281600;     // 2150-01-01

// Returns true if the text begins with a date and time such as "2026-11-21T10:11:12". strptime() alone would also
// accept spaces and signs.
bool has_date_and_time(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (text.size() < kForm.size()) return false;
  return std::equal(kForm.begin(), kForm.end(), text.begin(),
                    [](char form, char c) { return form == 'd' ? c >= '0' && c <= '9' : c == form; });
}

// Parses an offset of the form "+hh:mm" or "-hh:mm".
bool read_offset(std::string_view text, int& minutes) {
  constexpr std::string_view kForm = "sdd:dd";
  const auto digit = [&](size_t i) { return text[i] >= '0' && text[i] <= '9' ? text[i] - '0' : 99; };
  if (text.size() != kForm.size() || (text[0] != '+' && text[0] != '-') || text[3] != ':') return false;
  const int hours = digit(1) * 10 + digit(2);
  const int rest = digit(4) * 10 + digit(5);
  if (hours > 23 || rest > 59) return false;
  minutes = (hours * 60 + rest) * (text[0] == '-' ? -1 : 1);
  return true;
}

}  // namespace

std::string to_rfc3339(SystemTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

std::string to_rfc3339_micro(SystemTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  std::string text = to_rfc3339(time);
  text.pop_back();  // the Z
  return fmt::format("{}.{:06}Z", text, std::chrono::duration_cast<std::chrono::microseconds>(time - whole).count());
}

bool from_rfc3339(const std::string& text, SystemTime& time) {
  if (!has_date_and_time(text) || text.find('\0') != std::string::npos) return false;
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
  int offset_minutes = 0;
  const std::string_view zone = rest;
  if (zone != "Z" && zone != "z" && !read_offset(zone, offset_minutes)) return false;
  const int64_t seconds = int64_t{timegm(&parts)} - offset_minutes * 60;
  time = std::chrono::system_clock::from_time_t(std::clamp(seconds, kEarliest, kLatest)) +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(nanoseconds));
  return true;
}

}  // namespace oarlock
