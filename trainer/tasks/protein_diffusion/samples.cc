#include "trainer/tasks/protein_diffusion/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/data/random.h"

namespace oarlock::protein_diffusion {

namespace {

constexpr size_t kLineLength = 60;

using ResidueCounts = std::array<int64_t, kResidues.size()>;

ResidueFrequencies shares_of(const ResidueCounts& counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  ResidueFrequencies out{};
  if (total == 0) return out;
  std::transform(counts.begin(), counts.end(), out.begin(),
                 [&](int64_t count) { return static_cast<double>(count) / total; });
  return out;
}

void count_residue(int64_t token, ResidueCounts& counts) {
  if (token >= kFirstResidueToken && token < kVocabularySize) ++counts[static_cast<size_t>(token - kFirstResidueToken)];
}

}  // namespace

void SequenceSeeds::make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const {
  auto* to = batch.allocate("seed", {static_cast<int64_t>(indices.size())}, at::kLong).mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) *to++ = static_cast<int64_t>(mix_seed({seed, static_cast<uint64_t>(index)}));
}

ResidueFrequencies residue_frequencies(const Sequences& sequences, int64_t limit) {
  ResidueCounts counts{};
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < std::min(limit, sequences.size()); ++i) {
    tokens.resize(static_cast<size_t>(sequences.length(i)));
    sequences.tokens(i, tokens);
    for (const int64_t token : tokens) count_residue(token, counts);
  }
  return shares_of(counts);
}

ResidueFrequencies residue_frequencies(std::span<const std::string> sequences) {
  ResidueCounts counts{};
  for (const std::string& sequence : sequences) {
    for (const char letter : sequence) count_residue(encode(letter).value_or(kUnknownToken), counts);
  }
  return shares_of(counts);
}

double total_variation(const ResidueFrequencies& a, const ResidueFrequencies& b) {
  return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                               [](double x, double y) { return std::abs(x - y); }) /
         2;
}

std::string format_fasta(std::span<const std::string> sequences, int64_t step) {
  std::string out;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::string& letters = sequences[i];
    if (letters.empty()) continue;
    out += fmt::format(">step-{}-sequence-{} length={}\n", step, i, letters.size());
    for (size_t begin = 0; begin < letters.size(); begin += kLineLength) {
      out += letters.substr(begin, kLineLength) + '\n';
    }
  }
  return out;
}

std::string sequence_list(const at::Tensor& tokens) {
  constexpr int64_t kShown = 16;
  std::string out;
  for (const std::string& sequence : decode_rows(tokens.narrow(0, 0, std::min(kShown, tokens.size(0)))))
    out += fmt::format("- `{}`\n", sequence);
  return out;
}

std::vector<std::string> decode_rows(const at::Tensor& tokens) {
  const at::Tensor rows = tokens.to(at::kCPU, at::kLong).contiguous();
  const auto length = static_cast<size_t>(rows.size(1));
  std::vector<std::string> out;
  for (int64_t i = 0; i < rows.size(0); ++i) {
    out.push_back(decode({rows.const_data_ptr<int64_t>() + static_cast<size_t>(i) * length, length}));
  }
  return out;
}

Result<Metrics> write_samples(const std::filesystem::path& folder, const at::Tensor& tokens,
                              const ResidueFrequencies& data, int64_t step) {
  const std::vector<std::string> sequences = decode_rows(tokens);
  RETURN_IF_ERROR(make_writable_folder(folder));
  RETURN_IF_ERROR(write_file_atomically(folder / fmt::format("step-{}.fasta", step), format_fasta(sequences, step)));
  const auto letters = std::accumulate(sequences.begin(), sequences.end(), 0.0, [](double sum, const std::string& s) {
    return sum + static_cast<double>(s.size());
  });
  const auto count = static_cast<double>(sequences.size());
  return Metrics{{"samples", count},
                 {"mean_length", letters / count},
                 {"frequency_distance", total_variation(residue_frequencies(sequences), data)}};
}

}  // namespace oarlock::protein_diffusion
