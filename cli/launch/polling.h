// Helpers for a loop around poll(2).
#pragma once

#include <poll.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "common/clock.h"

namespace oarlock::launch {

// Returns the earlier of two deadlines; an absent one never passes.
inline std::optional<SteadyTime> earlier(std::optional<SteadyTime> a, std::optional<SteadyTime> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// Whether poll(2) has reported an event of a descriptor. Returns false for -1.
inline bool is_ready(int fd, const std::vector<pollfd>& polled) {
  return fd >= 0 && std::ranges::any_of(polled, [fd](const pollfd& one) { return one.fd == fd && one.revents != 0; });
}

}  // namespace oarlock::launch
