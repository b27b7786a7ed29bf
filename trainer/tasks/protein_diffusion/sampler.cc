#include "trainer/tasks/protein_diffusion/sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>

#include <vector>

#include "trainer/data/random.h"
#include "trainer/tasks/protein_diffusion/graph.h"

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

}  // namespace oarlock::protein_diffusion
