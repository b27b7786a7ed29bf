#include "workloads/protein_diffusion/sampling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/data/random.h"
#include "workloads/protein_diffusion/graph.h"

namespace oarlock::protein_diffusion {
namespace {

constexpr double kEndTime = 1e-5;  // the end of the reverse process

// Draws uniform numbers for all positions of all sequences, on the CPU, from one stream per sequence.
class SequenceRandom {
 public:
  SequenceRandom(std::span<const int64_t> seeds, int64_t length, at::Device device)
      : uniform_(at::empty({static_cast<int64_t>(seeds.size()), length}, at::kFloat)), device_(device) {
    for (const int64_t seed : seeds) streams_.emplace_back(static_cast<uint64_t>(seed), 0);
  }

  at::Tensor uniform() {
    auto* to = uniform_.mutable_data_ptr<float>();
    for (SampleRandom& stream : streams_) {
      for (int64_t i = 0; i < uniform_.size(1); ++i) *to++ = stream.uniform();
    }
    return uniform_.to(device_);
  }

 private:
  at::Tensor uniform_;
  at::Device device_;
  std::vector<SampleRandom> streams_;
};

}  // namespace

at::Tensor euler_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& rate,
                         double step_size) {
  const at::Tensor moves = reverse_rate(graph, x, score) * (rate * step_size).view({-1, 1, 1});
  return at::one_hot(x, graph.states()) + moves;
}

at::Tensor analytic_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score,
                            const at::Tensor& dsigma) {
  return graph.staggered_score(score, dsigma) * graph.transposed_transition(x, dsigma);
}

at::Tensor denoising_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score,
                             const at::Tensor& sigma) {
  const at::Tensor weights = analytic_weights(graph, x, score, sigma);
  return graph.absorbing() ? weights.slice(-1, 0, -1) : weights;
}

at::Tensor sample_sequences(const SamplerConfig& config, const Graph& graph, const NoiseConfig& noise,
                            const LogScore& log_score, std::span<const int64_t> seeds, int64_t length,
                            at::Device device) {
  SequenceRandom random(seeds, length, device);
  at::Tensor x = graph.sample_limit(random.uniform());
  const double step_size = (1 - kEndTime) / static_cast<double>(config.steps);
  const auto time = [&](int64_t step) {
    return at::full({x.size(0)}, 1 - static_cast<double>(step) * step_size, at::TensorOptions(device));
  };
  for (int64_t step = 0; step < config.steps; ++step) {
    const at::Tensor t = time(step);
    const at::Tensor sigma = total_noise(noise, t);
    const at::Tensor score = at::exp(log_score(x, sigma));
    const at::Tensor weights = config.predictor == Predictor::kEuler
                                   ? euler_weights(graph, x, score, noise_rate(noise, t), step_size)
                                   : analytic_weights(graph, x, score, sigma - total_noise(noise, time(step + 1)));
    x = sample_categorical(weights, random.uniform());
  }
  if (!config.noise_removal) return x;
  const at::Tensor sigma = total_noise(noise, time(config.steps));
  return sample_categorical(denoising_weights(graph, x, at::exp(log_score(x, sigma)), sigma), random.uniform());
}

// ---- Sampled sequences during training ---------------------------------------------------------------------------

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

Result<Metrics> write_samples(const std::filesystem::path& directory, const at::Tensor& tokens,
                              const ResidueFrequencies& data, int64_t step) {
  const std::vector<std::string> sequences = decode_rows(tokens);
  RETURN_IF_ERROR(make_writable_directory(directory));
  RETURN_IF_ERROR(write_file_atomically(directory / fmt::format("step-{}.fasta", step), format_fasta(sequences, step)));
  const auto letters = std::accumulate(sequences.begin(), sequences.end(), 0.0, [](double sum, const std::string& s) {
    return sum + static_cast<double>(s.size());
  });
  const auto count = static_cast<double>(sequences.size());
  return Metrics{{"samples", count},
                 {"mean_length", letters / count},
                 {"frequency_distance", total_variation(residue_frequencies(sequences), data)}};
}

}  // namespace oarlock::protein_diffusion
