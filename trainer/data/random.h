// Reproducible random numbers: per sample, and as Python's random module draws them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

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

// A random stream that depends only on a seed and a sample index, not on the thread or rank that draws from it.
// Construction is cheap.
class SampleRandom {
 public:
  SampleRandom(uint64_t seed, int64_t sample) : state_(mix_seed({seed, static_cast<uint64_t>(sample)})) {}

  uint64_t next() { return splitmix64(state_); }

  // Returns a multiple of 2^-24 in [0, 1), as torch.rand does in float32.
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24F; }

  // Returns a number in [0, n). n must be positive and far below 2^32, so that the bias of the multiplication is
  // negligible.
  int64_t below(int64_t n) { return static_cast<int64_t>(((next() >> 32) * static_cast<uint64_t>(n)) >> 32); }

 private:
  uint64_t state_;
};

// Reproduces random.seed(n) and random.shuffle() of CPython 3.2 and later, so that a data split of a Python program can
// be repeated. See Lib/random.py and Modules/_randommodule.c: MT19937, keyed with the 32-bit words of |n|.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  // Returns a number in [0, n), as Random._randbelow does. n must be positive.
  uint32_t below(uint32_t n);

  void shuffle(std::vector<int64_t>& items);

 private:
  std::mt19937 generator_;
};

}  // namespace oarlock
