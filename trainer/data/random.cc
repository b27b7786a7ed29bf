#include "trainer/data/random.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace oarlock {
namespace {

// Initializes the state like init_by_array() in mt19937ar.c by Matsumoto and Nishimura.
class InitByArray {
 public:
  using result_type = uint32_t;

  explicit InitByArray(std::vector<uint32_t> key) : key_(std::move(key)) {}

  template <typename Iterator>
  void generate(Iterator begin, Iterator end) const {
    const auto size = static_cast<uint32_t>(end - begin);
    const auto word = [&](uint32_t i) { return static_cast<uint32_t>(begin[i]); };
    begin[0] = 19650218U;
    for (uint32_t i = 1; i < size; ++i) begin[i] = 1812433253U * (word(i - 1) ^ (word(i - 1) >> 30)) + i;
    uint32_t i = 1;
    const auto advance = [&] {
      if (++i < size) return;
      begin[0] = word(size - 1);
      i = 1;
    };
    const auto length = static_cast<uint32_t>(key_.size());
    for (uint32_t k = 0; k < std::max(size, length); ++k) {
      begin[i] = (word(i) ^ ((word(i - 1) ^ (word(i - 1) >> 30)) * 1664525U)) + key_[k % length] + k % length;
      advance();
    }
    for (uint32_t k = 1; k < size; ++k) {
      begin[i] = (word(i) ^ ((word(i - 1) ^ (word(i - 1) >> 30)) * 1566083941U)) - i;
      advance();
    }
    begin[0] = 0x80000000U;
  }

 private:
  std::vector<uint32_t> key_;
};

std::vector<uint32_t> words_of(uint64_t seed) {
  std::vector<uint32_t> words{static_cast<uint32_t>(seed)};
  if (seed >> 32 != 0) words.push_back(static_cast<uint32_t>(seed >> 32));
  return words;
}

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) {
  InitByArray state(words_of(seed));
  generator_.seed(state);
}

uint32_t PythonRandom::below(uint32_t n) {
  const int bits = std::bit_width(n);
  for (;;) {
    const auto drawn = static_cast<uint32_t>(generator_()) >> (32 - bits);
    if (drawn < n) return drawn;
  }
}

void PythonRandom::shuffle(std::vector<int64_t>& items) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(static_cast<uint32_t>(i))]);
}

}  // namespace oarlock
