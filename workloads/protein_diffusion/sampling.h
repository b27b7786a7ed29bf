// Sampling from the model: the reverse process, from noise to sequences (sampling.py of
// https://github.com/louaaron/Score-Entropy-Discrete-Diffusion), and the sequences that are sampled during training,
// with their seeds as a dataset, their FASTA files and metrics.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/engine/task.h"
#include "workloads/protein_diffusion/config.h"
#include "workloads/protein_diffusion/data.h"
#include "workloads/protein_diffusion/graph.h"

namespace oarlock::protein_diffusion {

// These three functions return the weights, [n, length, states], from which the next states of the positions are drawn;
// they need not sum to 1. x holds the current states, and score the ratios at x.

// One Euler step of the reverse rates. `rate` is the rate of the noise, [n].
at::Tensor euler_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& rate,
                         double step_size);
// The step from noise sigma to sigma - dsigma, which is exact if the score is exact.
at::Tensor analytic_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& dsigma);
// The step from noise sigma to no noise, which never yields the mask.
at::Tensor denoising_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& sigma);

// Samples a sequence of `length` tokens for each seed, int64 [seeds, length] on the device. A sequence depends only on
// the model and its own seed, not on the sequences that are sampled in the same call.
at::Tensor sample_sequences(const SamplerConfig& config, const Graph& graph, const NoiseConfig& noise,
                            const LogScore& log_score, std::span<const int64_t> seeds, int64_t length,
                            at::Device device);

// ---- Sampled sequences during training ---------------------------------------------------------------------------

// Sample i is the seed of sequence i.
class SequenceSeeds final : public Dataset {
 public:
  explicit SequenceSeeds(int64_t count) : count_(count) {}
  int64_t size() const override { return count_; }
  // Adds "seed", int64 [n].
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;

 private:
  int64_t count_;
};

// Shares of the 20 amino acids in the order of kResidues; all 0 if there are no amino acids.
using ResidueFrequencies = std::array<double, kResidues.size()>;

// Returns the frequencies in the first `limit` sequences.
ResidueFrequencies residue_frequencies(const Sequences& sequences, int64_t limit);
ResidueFrequencies residue_frequencies(std::span<const std::string> sequences);

// Total variation distance: half the sum of the absolute differences, between 0 and 1.
double total_variation(const ResidueFrequencies& a, const ResidueFrequencies& b);

// Formats sequences as FASTA with 60 letters per line and the names step-N-sequence-I. Skips sequences without an amino
// acid, because FASTA readers reject them.
std::string format_fasta(std::span<const std::string> sequences, int64_t step);

// Returns the first sequences of tokens [sequences, length] as a list in Markdown.
std::string sequence_list(const at::Tensor& tokens);

// Decodes tokens [sequences, length].
std::vector<std::string> decode_rows(const at::Tensor& tokens);

// Writes `directory`/step-N.fasta atomically and returns the metrics samples, mean_length and frequency_distance (the
// total variation distance from the frequencies of the training data). Fails with kCantCreate or kIoErr.
Result<Metrics> write_samples(const std::filesystem::path& directory, const at::Tensor& tokens,
                              const ResidueFrequencies& data, int64_t step);

}  // namespace oarlock::protein_diffusion
