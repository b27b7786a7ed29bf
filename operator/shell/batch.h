// Calls in growing batches, as Kubernetes' Job controller creates pods (slowStartBatch): one, then twice as many at
// once as long as all succeed. Where the server refuses (a quota, a webhook), one call has failed and not a thousand.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace oarlock::control {

inline constexpr size_t kMostAtOnce = 16;  // threads, and so connections

// Calls call(0), call(1) ... call(count - 1), each at most once. True: it succeeded. Returns the number of calls made,
// from the front; the last batch may hold failures. Exceptions of `call` end the program: it must not throw.
inline size_t call_in_batches(size_t count, const std::function<bool(size_t)>& call) {
  size_t begun = 0;
  for (size_t batch = 1; begun < count; batch *= 2) {
    const size_t end = std::min(begun + batch, count);
    std::atomic<size_t> next = begun;
    std::atomic<bool> good = true;
    const auto work = [&] {
      for (size_t i = next++; i < end; i = next++) {
        if (!call(i)) good = false;
      }
    };
    {
      std::vector<std::jthread> helpers;
      for (size_t i = 1; i < std::min(end - begun, kMostAtOnce); ++i) helpers.emplace_back(work);
      work();
    }
    begun = end;
    if (!good) break;
  }
  return begun;
}

}  // namespace oarlock::control
