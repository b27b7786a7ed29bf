#include "trainer/tasks/protein_diffusion/tokenizer.h"

#include <array>
#include <limits>

namespace oarlock::protein_diffusion {

namespace {

constexpr uint8_t kNone = std::numeric_limits<uint8_t>::max();

constexpr std::array<uint8_t, 256> make_table() {
  std::array<uint8_t, 256> table{};
  table.fill(kNone);
  for (size_t i = 0; i < kResidues.size(); ++i) {
    const auto token = static_cast<uint8_t>(kFirstResidueToken + static_cast<int64_t>(i));
    table[static_cast<uint8_t>(kResidues[i])] = token;
    table[static_cast<uint8_t>(kResidues[i] - 'A' + 'a')] = token;
  }
  return table;
}

constexpr std::array<uint8_t, 256> kTokens = make_table();

}  // namespace

std::optional<int64_t> encode(char letter) {
  const uint8_t token = kTokens[static_cast<uint8_t>(letter)];
  if (token == kNone) return std::nullopt;
  return token;
}

std::string decode(std::span<const int64_t> tokens) {
  std::string letters;
  for (const int64_t token : tokens) {
    if (token == kUnknownToken) letters += 'X';
    if (token < kFirstResidueToken || token >= kVocabularySize) continue;
    letters += kResidues[static_cast<size_t>(token - kFirstResidueToken)];
  }
  return letters;
}

}  // namespace oarlock::protein_diffusion
