// Python's random.seed(n) and random.shuffle(), so that a split drawn in Python is drawn again here.
// Source: Lib/random.py and Modules/_randommodule.c of CPython (3.2 and later): MT19937, keyed by the words of |n|.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace oarlock {

class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  // In [0, n), n > 0: Random._randbelow.
  uint32_t below(uint32_t n);

  void shuffle(std::vector<int64_t>& items);

 private:
  std::mt19937 generator_;
};

}  // namespace oarlock
