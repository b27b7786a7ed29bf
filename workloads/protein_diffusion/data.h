// The data of the task protein_diffusion: the vocabulary, and memory-mapped token sequences with the random numbers of
// their noise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/cache_directory.h"
#include "trainer/data/dataset.h"
#include "trainer/data/fingerprint.h"
#include "workloads/formats/packed_records.h"
#include "workloads/protein_diffusion/config.h"

namespace oarlock::protein_diffusion {

// The vocabulary: 5 special tokens, followed by the 20 amino acids in the order of their letters.
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

// ---- Datasets ----------------------------------------------------------------------------------------------------

// Protein sequences as tokens. They are memory-mapped: even 60 million sequences take memory only when they are read.
class Sequences {
 public:
  // `limit`: uses only the first sequences; 0: all.
  // `entry`: the entry of the cache that contains them, if any.
  explicit Sequences(PackedRecords tokens, int64_t limit = 0, std::shared_ptr<const CacheEntry> entry = nullptr)
      : entry_(std::move(entry)),
        tokens_(std::move(tokens)),
        size_(limit > 0 ? std::min(limit, tokens_.size()) : tokens_.size()) {}

  int64_t size() const { return size_; }
  // Number of stored tokens of sequence i; at least 1.
  int64_t length(int64_t i) const { return tokens_.length(i); }
  // Copies the first tokens of sequence i to `out` and fills the rest of it with <pad>. Thread-safe. `i` must be below
  // size().
  void tokens(int64_t i, std::span<int64_t> out) const;

 private:
  std::shared_ptr<const CacheEntry> entry_;
  PackedRecords tokens_;
  int64_t size_;
};

struct NoisedSequencesOptions {
  int64_t length = 512;       // tokens of a sequence: longer ones are truncated, shorter ones padded
  bool replacements = false;  // adds "replacement", which the uniform graph needs
  bool spread_times = false;  // times of consecutive sequences cover [0, 1) evenly, which reduces the variance of the
                              // mean over many sequences; otherwise they are independent
};

class NoisedSequences final : public Dataset {
 public:
  NoisedSequences(Sequences sequences, const NoisedSequencesOptions& options);

  int64_t size() const override { return sequences_.size(); }
  const Sequences& sequences() const { return sequences_; }

  // Adds "tokens", int64 [n, length], and numbers that are uniform in [0, 1): "time", float [n], "move" and, if
  // enabled, "replacement", float [n, length]. They depend only on the epoch's seed and the sequence.
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;
  std::string fingerprint() const override { return sampled_fingerprint(*this); }

 private:
  float time_of(int64_t index, uint64_t seed, float random) const;

  Sequences sequences_;
  NoisedSequencesOptions options_;
};

// Converts the FASTA files of the section "data" to packed tokens unless that is done (fasta_conversion.h). For
// Task::prepare_data(), on one rank of each node. Fails with kNoInput, kCantCreate, or kDataErr naming file and line.
Result<void> prepare_proteins(const ProteinDataConfig& config, const Logger& log);

struct ProteinSplits {
  Sequences train;
  Sequences eval;
};

// Opens the files that prepare_proteins() created, or creates them. For Task::prepare(). Fails with kDataErr if a split
// is empty, and otherwise as prepare_proteins().
Result<ProteinSplits> open_proteins(const ProteinDataConfig& config, const Logger& log = Logger::silent());

}  // namespace oarlock::protein_diffusion
