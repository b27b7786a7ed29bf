// Reproducible random numbers: per sample, and as Python's random module draws them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "common/mix_seed.h"  // IWYU pragma: export

namespace oarlock {

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
