// For tests whose size can be chosen by hand, and that print what they have measured.
#pragma once

#include <chrono>
#include <cstdlib>

namespace oarlock::test {

// The number in an environment variable, or else `value`.
inline int option(const char* name, int value) {
  const char* text = std::getenv(name);
  return text == nullptr ? value : std::atoi(text);
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace oarlock::test
