#include "trainer/tasks/protein_diffusion/noised_sequences.h"

#include <utility>

#include "trainer/data/random.h"

namespace oarlock {

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

// Spread: an additive recurrence with the golden ratio, in 64-bit fractions, from a random beginning.
float NoisedSequences::time_of(int64_t index, uint64_t seed, float random) const {
  if (!options_.spread_times) return random;
  constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15ULL;
  const uint64_t fraction = mix_seed({seed}) + static_cast<uint64_t>(index) * kGoldenRatio;
  return static_cast<float>(fraction >> 40) * 0x1p-24F;
}

}  // namespace oarlock
