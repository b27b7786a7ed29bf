#include "trainer/tasks/protein_diffusion/sedd/loss.h"

#include <ATen/TensorOperators.h>

namespace oarlock {

at::Tensor position_losses(const LogScore& log_score, const Graph& graph, const NoiseConfig& noise,
                           const NoiseDraw& draw) {
  const at::Tensor sigma = total_noise(noise, draw.time);
  const at::Tensor x = graph.noised(draw.tokens, sigma * draw.noise_factor, draw.move, draw.replacement);
  const at::Tensor entropy = graph.score_entropy(log_score(x, sigma), sigma, x, draw.tokens);
  return entropy * noise_rate(noise, draw.time).unsqueeze(-1);
}

}  // namespace oarlock
