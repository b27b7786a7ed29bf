// Seeds from several numbers.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace oarlock {

// Advances a splitmix64 generator (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
inline uint64_t splitmix64(uint64_t& state) {
  state += 0x9e3779b97f4a7c15ULL;
  uint64_t out = state;
  out = (out ^ (out >> 30)) * 0xbf58476d1ce4e5b9ULL;
  out = (out ^ (out >> 27)) * 0x94d049bb133111ebULL;
  return out ^ (out >> 31);
}

// Combines several numbers into a well-mixed seed.
inline uint64_t mix_seed(std::initializer_list<uint64_t> parts) {
  uint64_t state = 0;
  for (const uint64_t part : parts) {
    state += part;
    state = splitmix64(state);
  }
  return state;
}

}  // namespace oarlock
