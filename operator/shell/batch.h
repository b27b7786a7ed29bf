// Calls in growing batches, as Kubernetes' Job controller creates pods (slowStartBatch): one call, then twice as many
// as before while all succeed. When the server refuses (a quota, a webhook), few calls have failed and not thousands.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace oarlock::control {

inline constexpr size_t kMostAtOnce = 16;  // threads, and so connections

// Calls call(0), call(1) ... call(count - 1), each at most once; true means success. After a failure no further call
// begins. Returns the number of calls made, which are the first ones; of the last kMostAtOnce some may have failed.
// An exception of `call` ends the program: it must not throw.
inline size_t call_in_batches(size_t count, const std::function<bool(size_t)>& call) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> good = true;
  size_t end = 0;
  for (size_t batch = 1; end < count && good; batch *= 2) {
    const size_t begin = end;
    end = std::min(begin + batch, count);
    next = begin;
    const auto work = [&] {
      while (good) {
        const size_t i = next++;
        if (i >= end) return;
        if (!call(i)) good = false;
      }
    };
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < std::min(end - begin, kMostAtOnce); ++i) helpers.emplace_back(work);
    work();
  }
  return std::min<size_t>(next, end);
}

}  // namespace oarlock::control
