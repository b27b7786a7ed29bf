// The vocabulary of protein sequences: 5 special tokens, then the 20 amino acids in the order of their letters.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace oarlock {

constexpr int64_t kStartToken = 0;
constexpr int64_t kPadToken = 1;
constexpr int64_t kEndToken = 2;
constexpr int64_t kUnknownToken = 3;
constexpr int64_t kMaskToken = 4;  // of the vocabulary; the absorbing state of the diffusion is one behind model.tokens
constexpr int64_t kFirstResidueToken = 5;
constexpr std::string_view kResidues = "ACDEFGHIKLMNPQRSTVWY";
constexpr int64_t kResidueTokens = kFirstResidueToken + static_cast<int64_t>(kResidues.size());  // 25

// 5..24 for an amino acid, upper or lower case; nothing for another character.
std::optional<int64_t> token_of(char letter);

// The amino acids as letters, <unk> as X. Padding, start, end, mask and tokens behind the vocabulary are left out.
std::string letters_of(std::span<const int64_t> tokens);

}  // namespace oarlock
