// Protein sequences with the random numbers of their noise, which depend on the epoch and the sequence alone.
#pragma once

#include <cstdint>

#include "trainer/data/dataset.h"
#include "trainer/tasks/protein_diffusion/sequences.h"

namespace oarlock {

struct NoisedSequencesOptions {
  int64_t length = 512;       // tokens of a sequence: longer ones are cut, shorter ones padded
  bool replacements = false;  // the uniform graph needs them
  bool spread_times = false;  // times of consecutive sequences fill [0, 1) evenly, which makes the mean over many
                              // sequences more exact; else each is drawn by itself
};

class NoisedSequences final : public Dataset {
 public:
  NoisedSequences(Sequences sequences, const NoisedSequencesOptions& options);

  int64_t size() const override { return sequences_.size(); }
  const Sequences& sequences() const { return sequences_; }

  // "tokens": int64 [n, length]; uniform in [0, 1): "time", float [n], "move" and, with replacements, "replacement",
  // float [n, length].
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;

 private:
  float time_of(int64_t index, uint64_t seed, float random) const;

  Sequences sequences_;
  NoisedSequencesOptions options_;
};

}  // namespace oarlock
