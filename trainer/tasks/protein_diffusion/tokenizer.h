// The vocabulary of protein sequences: 5 special tokens, followed by the 20 amino acids in the order of their letters.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace oarlock::protein_diffusion {

constexpr int64_t kStartToken = 0;
constexpr int64_t kPadToken = 1;
constexpr int64_t kEndToken = 2;
constexpr int64_t kUnknownToken = 3;
constexpr int64_t kMaskToken =
    4;  // unused: the mask of the absorbing graph is the state after the last of model.tokens
constexpr int64_t kFirstResidueToken = 5;
constexpr std::string_view kResidues = "ACDEFGHIKLMNPQRSTVWY";
constexpr int64_t kVocabularySize = kFirstResidueToken + static_cast<int64_t>(kResidues.size());  // 25

// Returns 5..24 for an amino acid in upper or lower case, and nothing for any other character.
std::optional<int64_t> encode(char letter);

// Returns the amino acids as letters and <unk> as X. Skips all other special tokens and tokens outside the vocabulary.
std::string decode(std::span<const int64_t> tokens);

}  // namespace oarlock::protein_diffusion
