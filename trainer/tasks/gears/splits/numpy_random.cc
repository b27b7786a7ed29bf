#include "trainer/tasks/gears/splits/numpy_random.h"

#include <bit>
#include <utility>

namespace oarlock {

uint32_t NumpyRandom::below_or(uint32_t most) {
  if (most == 0) return 0;
  const uint32_t mask = UINT32_MAX >> std::countl_zero(most);
  while (true) {
    const auto value = static_cast<uint32_t>(generator_()) & mask;
    if (value <= most) return value;
  }
}

std::vector<std::string> NumpyRandom::choice(const std::vector<std::string>& from, int64_t size) {
  std::vector<std::string> shuffled = from;
  for (size_t i = shuffled.size(); i-- > 1;) std::swap(shuffled[i], shuffled[below_or(static_cast<uint32_t>(i))]);
  shuffled.resize(static_cast<size_t>(size));
  return shuffled;
}

std::vector<std::string> NumpyRandom::choice_with_replacement(const std::vector<std::string>& from, int64_t size) {
  std::vector<std::string> chosen;
  for (int64_t i = 0; i < size; ++i) chosen.push_back(from[below_or(static_cast<uint32_t>(from.size() - 1))]);
  return chosen;
}

}  // namespace oarlock
