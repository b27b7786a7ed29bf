// The draws of numpy.random.RandomState (numpy/random/mtrand.pyx), so that a seed gives the splits that the Python
// original gives. MT19937 itself is the standard library's.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace oarlock {

class NumpyRandom {
 public:
  // numpy.random.seed(seed)
  explicit NumpyRandom(uint32_t seed) : generator_(seed) {}

  // choice(from, size, replace=False): the first of a permutation. `size` must not exceed that of `from`.
  std::vector<std::string> choice(const std::vector<std::string>& from, int64_t size);

  // choice(from, size): with replacement. `from` must not be empty where size > 0.
  std::vector<std::string> choice_with_replacement(const std::vector<std::string>& from, int64_t size);

 private:
  // In [0, most]: the lowest bits of 32, drawn again while they are above (random_interval).
  uint32_t below_or(uint32_t most);

  std::mt19937 generator_;
};

}  // namespace oarlock
