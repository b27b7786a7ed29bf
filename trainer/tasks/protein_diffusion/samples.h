// Sequences that the model is asked for during training: seeds as a dataset, and what becomes of the sequences.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/engine/eval_pass.h"
#include "trainer/tasks/protein_diffusion/residues.h"
#include "trainer/tasks/protein_diffusion/sequences.h"

namespace oarlock {

// Sample i is the seed of sequence i.
class SequenceSeeds final : public Dataset {
 public:
  explicit SequenceSeeds(int64_t count) : count_(count) {}
  int64_t size() const override { return count_; }
  // "seed": int64 [n].
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;

 private:
  int64_t count_;
};

// Shares of the 20 amino acids, in the order of kResidues; all 0 where there is none.
using ResidueFrequencies = std::array<double, kResidues.size()>;

// Of the first `limit` sequences.
ResidueFrequencies residue_frequencies(const Sequences& sequences, int64_t limit);
ResidueFrequencies residue_frequencies(std::span<const std::string> sequences);

// Half the sum of the differences: 0 for the same frequencies, 1 where no amino acid is in both.
double total_variation(const ResidueFrequencies& a, const ResidueFrequencies& b);

// FASTA, 60 letters a line, named step-N-sequence-I. A sequence without an amino acid is left out, as FASTA readers
// refuse it.
std::string fasta_of(std::span<const std::string> sequences, int64_t step);

// The letters of tokens [sequences, length].
std::vector<std::string> letters_of_rows(const at::Tensor& tokens);

// Writes `folder`/step-N.fasta in one step, and gives the metrics: samples, mean_length, frequency_distance (total
// variation from the frequencies of the data). kCantCreate, kIoErr.
Result<Metrics> write_samples(const std::filesystem::path& folder, const at::Tensor& tokens,
                              const ResidueFrequencies& data, int64_t step);

}  // namespace oarlock
