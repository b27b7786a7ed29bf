#include "common/status_query.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace oarlock {

std::string to_string(const StatusQuery& query) {
  const std::string uid = "uid=" + query.uid;
  return query.checkpoint ? fmt::format("checkpoint={}&{}", *query.checkpoint, uid) : uid;
}

StatusQuery parse_status_query(std::string_view text) {
  StatusQuery out;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t sign = part.find('=');
    if (sign == std::string_view::npos) continue;
    const std::string_view value = part.substr(sign + 1);
    if (part.starts_with("uid=")) out.uid = value;
    if (!part.starts_with("checkpoint=")) continue;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size()) out.checkpoint = number;
  }
  return out;
}

bool CheckpointRequests::add(const StatusQuery& query) {
  if (!query.checkpoint || uid_.empty() || query.uid != uid_) return false;
  const SteadyTime now = clock_.steady();
  const std::lock_guard lock(mutex_);
  if (last_ == query.checkpoint || (last_time_ && now - *last_time_ < kMinInterval)) return false;
  last_ = query.checkpoint;
  last_time_ = now;
  return true;
}

void CheckpointRequests::repeat() {
  const std::lock_guard lock(mutex_);
  last_.reset();
}

}  // namespace oarlock
