// Random numbers that depend on a seed and on what they are for, never on which thread or rank draws them.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace oarlock {

// A step of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
inline uint64_t splitmix64(uint64_t& state) {
  state += 0x9e3779b97f4a7c15ULL;
  uint64_t out = state;
  out = (out ^ (out >> 30)) * 0xbf58476d1ce4e5b9ULL;
  out = (out ^ (out >> 27)) * 0x94d049bb133111ebULL;
  return out ^ (out >> 31);
}

// A well-mixed seed from several numbers.
inline uint64_t mix_seed(std::initializer_list<uint64_t> parts) {
  uint64_t state = 0;
  for (const uint64_t part : parts) {
    state += part;
    state = splitmix64(state);
  }
  return state;
}

// The numbers that belong to one sample under one seed: a stream of splitmix64, which costs nothing to begin.
class SampleRandom {
 public:
  SampleRandom(uint64_t seed, int64_t sample) : state_(mix_seed({seed, static_cast<uint64_t>(sample)})) {}

  uint64_t next() { return splitmix64(state_); }

  // In [0, 1), a multiple of 2^-24, as torch.rand gives them in float32.
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24F; }

  // In [0, n); n > 0 and far below 2^32, so that the bias of the multiplication is nothing.
  int64_t below(int64_t n) { return static_cast<int64_t>(((next() >> 32) * static_cast<uint64_t>(n)) >> 32); }

 private:
  uint64_t state_;
};

}  // namespace oarlock
