#include "workloads/protein_diffusion/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "common/status_macros.h"
#include "trainer/data/random.h"
#include "workloads/protein_diffusion/fasta_conversion.h"

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

// ---- Datasets ----------------------------------------------------------------------------------------------------

void Sequences::tokens(int64_t i, std::span<int64_t> out) const {
  const std::span<const uint8_t> stored = tokens_[i];
  const size_t count = std::min(stored.size(), out.size());
  std::copy_n(stored.begin(), count, out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(count), out.end(), kPadToken);
}

NoisedSequences::NoisedSequences(Sequences sequences, const NoisedSequencesOptions& options)
    : sequences_(std::move(sequences)), options_(options) {}

void NoisedSequences::make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const {
  const auto n = static_cast<int64_t>(indices.size());
  const int64_t length = options_.length;
  const auto floats = [&](const char* name, at::IntArrayRef sizes) {
    return batch.allocate(name, sizes, at::kFloat).mutable_data_ptr<float>();
  };
  auto* tokens = batch.allocate("tokens", {n, length}, at::kLong).mutable_data_ptr<int64_t>();
  float* time = floats("time", {n});
  float* move = floats("move", {n, length});
  float* replacement = options_.replacements ? floats("replacement", {n, length}) : nullptr;
  for (const int64_t index : indices) {
    sequences_.tokens(index, {tokens, static_cast<size_t>(length)});
    tokens += length;
    SampleRandom random(seed, index);
    *time++ = time_of(index, seed, random.uniform());
    for (int64_t i = 0; i < length; ++i) *move++ = random.uniform();
    if (replacement == nullptr) continue;
    for (int64_t i = 0; i < length; ++i) *replacement++ = random.uniform();
  }
}

// Spread times are an additive recurrence with the golden ratio, in 64-bit fractions, from a random start.
float NoisedSequences::time_of(int64_t index, uint64_t seed, float random) const {
  if (!options_.spread_times) return random;
  constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15ULL;
  const uint64_t fraction = mix_seed({seed}) + static_cast<uint64_t>(index) * kGoldenRatio;
  return static_cast<float>(fraction >> 40) * 0x1p-24F;
}

namespace {

using Entry = std::shared_ptr<const CacheEntry>;

// Adds the remedy to the error if the file does not exist.
Result<Entry> open_file(const std::string& path, std::string_view key, const ProteinDataConfig& config,
                        const SequenceFilter& filter, const HeldOut& held_out, const Logger& log) {
  Result<CacheEntry> opened = open_conversion(path, filter, held_out, config.cache, log);
  if (opened) return std::make_shared<const CacheEntry>(*std::move(opened));
  if (opened.error().code == ExitCode::kNoInput) {
    opened.error().message += fmt::format(
        " (data.{}); `apt-get install mmseqs2-examples` installs 20,000 proteins into "
        "/usr/share/doc/mmseqs2/example-data",
        key);
  }
  return tl::make_unexpected(opened.error());
}

struct Conversions {
  Entry train;
  Entry eval;  // the same without data.eval_path
};

Result<Conversions> open_conversions(const ProteinDataConfig& config, const Logger& log) {
  const bool has_eval_file = !config.eval_path.empty();
  ASSIGN_OR_RETURN(Entry train, open_file(config.path, "path", config, config.filter,
                                          has_eval_file ? HeldOut{} : config.held_out, log));
  if (!has_eval_file) return Conversions{train, train};
  SequenceFilter filter = config.filter;
  filter.max_sequences = 0;
  ASSIGN_OR_RETURN(Entry eval, open_file(config.eval_path, "eval_path", config, filter, {}, log));
  return Conversions{std::move(train), std::move(eval)};
}

Result<Sequences> open_split(const Entry& entry, const char* stem, int64_t limit, const std::string& remedy) {
  ASSIGN_OR_RETURN(PackedRecords packed, PackedRecords::open(entry->path() / stem));
  if (packed.size() == 0) return fail(ExitCode::kDataErr, remedy);
  return Sequences(std::move(packed), limit, entry);
}

}  // namespace

Result<void> prepare_proteins(const ProteinDataConfig& config, const Logger& log) {
  return open_conversions(config, log).map([](const Conversions&) {});
}

Result<ProteinSplits> open_proteins(const ProteinDataConfig& config, const Logger& log) {
  ASSIGN_OR_RETURN(const Conversions conversions, open_conversions(config, log));
  ASSIGN_OR_RETURN(Sequences train, open_split(conversions.train, "train", 0,
                                               fmt::format("{}: every sequence is held out; lower "
                                                           "data.eval_fraction ({})",
                                                           config.path, config.held_out.fraction)));
  // No part of eval_path is held out.
  ASSIGN_OR_RETURN(Sequences eval,
                   open_split(conversions.eval, config.eval_path.empty() ? "eval" : "train", config.eval_sequences,
                              fmt::format("{}: no sequence is held out; raise data.eval_fraction ({}) "
                                          "or set data.eval_path",
                                          config.path, config.held_out.fraction)));
  return ProteinSplits{.train = std::move(train), .eval = std::move(eval)};
}

}  // namespace oarlock::protein_diffusion
