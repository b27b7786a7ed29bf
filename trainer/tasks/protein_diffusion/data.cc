#include "trainer/tasks/protein_diffusion/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "common/status_macros.h"
#include "trainer/data/random.h"
#include "trainer/tasks/protein_diffusion/fasta_conversion.h"

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

namespace fs = std::filesystem;

// Adds the remedy to the error if the file does not exist.
Result<Conversion> locate(const std::string& path, std::string_view key, const ProteinDataConfig& config,
                          const SequenceFilter& filter, const HeldOut& held_out) {
  Result<Conversion> located = locate_conversion(path, filter, held_out, config.cache);
  if (!located && located.error().code == ExitCode::kNoInput) {
    located.error().message += fmt::format(
        " (data.{}); `apt-get install mmseqs2-examples` installs 20,000 proteins into "
        "/usr/share/doc/mmseqs2/example-data",
        key);
  }
  return located;
}

Result<Conversion> train_conversion(const ProteinDataConfig& config) {
  HeldOut held_out = config.held_out;
  if (!config.eval_path.empty()) held_out = {};
  return locate(config.path, "path", config, config.filter, held_out);
}

Result<Conversion> eval_conversion(const ProteinDataConfig& config) {
  SequenceFilter filter = config.filter;
  filter.max_sequences = 0;
  return locate(config.eval_path, "eval_path", config, filter, {});
}

Result<Sequences> open_split(const fs::path& stem, int64_t limit, const std::string& remedy) {
  ASSIGN_OR_RETURN(PackedRecords packed, PackedRecords::open(stem));
  if (packed.size() == 0) return fail(ExitCode::kDataErr, remedy);
  return Sequences(std::move(packed), limit);
}

}  // namespace

Result<void> prepare_proteins(const ProteinDataConfig& config, const Logger& log) {
  ASSIGN_OR_RETURN(Conversion train, train_conversion(config));
  if (const Result<void> converted = convert_once(train, log); !converted || config.eval_path.empty()) return converted;
  ASSIGN_OR_RETURN(Conversion eval, eval_conversion(config));
  return convert_once(eval, log);
}

Result<ProteinSplits> open_proteins(const ProteinDataConfig& config) {
  ASSIGN_OR_RETURN(Conversion converted, train_conversion(config));
  fs::path eval_stem = converted.folder / "eval";
  if (!config.eval_path.empty()) {
    ASSIGN_OR_RETURN(Conversion eval, eval_conversion(config));
    eval_stem = eval.folder / "train";  // no part of eval_path is held out
  }
  ASSIGN_OR_RETURN(Sequences train, open_split(converted.folder / "train", 0,
                                               fmt::format("{}: every sequence is held out; lower "
                                                           "data.eval_fraction ({})",
                                                           config.path, config.held_out.fraction)));
  ASSIGN_OR_RETURN(Sequences eval, open_split(eval_stem, config.eval_sequences,
                                              fmt::format("{}: no sequence is held out; raise data.eval_fraction ({}) "
                                                          "or set data.eval_path",
                                                          config.path, config.held_out.fraction)));
  return ProteinSplits{.train = std::move(train), .eval = std::move(eval)};
}

}  // namespace oarlock::protein_diffusion
