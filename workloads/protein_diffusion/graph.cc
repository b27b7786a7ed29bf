#include "workloads/protein_diffusion/graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace oarlock::protein_diffusion {

at::Tensor total_noise(const NoiseConfig& config, const at::Tensor& t) {
  switch (config.kind) {
    case NoiseKind::kLogLinear:
      return at::log1p(t * (config.eps - 1)).neg();
    case NoiseKind::kGeometric:
      return at::exp(t * std::log(config.sigma_max / config.sigma_min)) * config.sigma_min;
    case NoiseKind::kCosine:
      break;
  }
  const double half = (config.sigma_min - config.sigma_max) / 2;
  return (at::cos(t * std::numbers::pi) + 1) * half + config.sigma_max;
}

at::Tensor noise_rate(const NoiseConfig& config, const at::Tensor& t) {
  switch (config.kind) {
    case NoiseKind::kLogLinear:
      return at::reciprocal(t * (config.eps - 1) + 1) * (1 - config.eps);
    case NoiseKind::kGeometric:
      return total_noise(config, t) * std::log(config.sigma_max / config.sigma_min);
    case NoiseKind::kCosine:
      break;
  }
  const double amplitude = std::numbers::pi / 2 * (config.sigma_max - config.sigma_min);
  return at::sin(t * std::numbers::pi) * amplitude;
}

namespace {

// The probability that a token has moved after noise sigma, [n, 1].
at::Tensor move_probability(const at::Tensor& sigma) { return at::expm1(-sigma).neg().unsqueeze(-1); }

// Noise masks: every token moves to the mask at rate 1, and the mask never changes.
class AbsorbingGraph final : public Graph {
 public:
  explicit AbsorbingGraph(int64_t tokens) : mask_(tokens) {}

  int64_t states() const override { return mask_ + 1; }
  bool absorbing() const override { return true; }

  at::Tensor sample_transition(const at::Tensor& x0, const at::Tensor& sigma, const at::Tensor& move,
                               const at::Tensor& /*replacement*/) const override {
    return x0.masked_fill(move.lt(move_probability(sigma)), mask_);
  }

  at::Tensor sample_limit(const at::Tensor& uniform) const override { return at::full_like(uniform, mask_, at::kLong); }

  // At a masked position: sum over tokens y of s_y, minus r log s_x0, plus r (log r - 1), where r = 1 / (e^sigma - 1)
  // is the true ratio of x0, and the ratio of every other token is 0. At a position that is not masked: 0, because its
  // token cannot have been another one.
  at::Tensor score_entropy(const at::Tensor& log_score, const at::Tensor& sigma, const at::Tensor& x,
                           const at::Tensor& x0) const override {
    const at::Tensor masked = x.eq(mask_);
    // Unused values must not overflow: infinity times a gradient of 0 would be NaN.
    const at::Tensor used = log_score.slice(-1, 0, mask_).masked_fill(masked.logical_not().unsqueeze(-1), 0);
    const at::Tensor ratio = at::expm1(sigma).reciprocal().unsqueeze(-1);
    const at::Tensor positive = at::exp(used).sum(-1);
    const at::Tensor negative = ratio * used.gather(-1, x0.unsqueeze(-1)).squeeze(-1);
    const at::Tensor constant = ratio * (ratio.log() - 1);
    return (positive - negative + constant).masked_fill(masked.logical_not(), 0);
  }

  at::Tensor transposed_rate(const at::Tensor& x, at::ScalarType type) const override {
    return x.eq(mask_).unsqueeze(-1).to(type) - at::one_hot(x, states()).to(type);
  }

  at::Tensor transposed_transition(const at::Tensor& x, const at::Tensor& sigma) const override {
    const at::Tensor stays = at::exp(-sigma).view({-1, 1, 1});
    const at::Tensor moved = at::expm1(-sigma).neg().view({-1, 1, 1});
    return stays * at::one_hot(x, states()) + moved * x.eq(mask_).unsqueeze(-1);
  }

  at::Tensor staggered_score(const at::Tensor& score, const at::Tensor& dsigma) const override {
    const at::Tensor into_mask = at::expm1(dsigma).neg().unsqueeze(-1) * score.sum(-1);
    at::Tensor out = score * at::exp(dsigma).view({-1, 1, 1});
    out.select(-1, mask_).add_(into_mask);
    return out;
  }

 private:
  int64_t mask_;
};

// Noise replaces: every token moves to every other at the same rate, 1 / tokens.
class UniformGraph final : public Graph {
 public:
  explicit UniformGraph(int64_t tokens) : tokens_(tokens) {}

  int64_t states() const override { return tokens_; }
  bool absorbing() const override { return false; }

  at::Tensor sample_transition(const at::Tensor& x0, const at::Tensor& sigma, const at::Tensor& move,
                               const at::Tensor& replacement) const override {
    return at::where(move.lt(move_probability(sigma)), sample_limit(replacement), x0);
  }

  at::Tensor sample_limit(const at::Tensor& uniform) const override {
    return (uniform * tokens_).to(at::kLong).clamp_max(tokens_ - 1);
  }

  // With N tokens and e = e^sigma - 1, the true ratio between x0 and any other token is 1 + N / e. If x is x0, the
  // ratio of every other token is the inverse, q = e / (e + N); otherwise it is 1, except for x0, whose ratio is 1 / q.
  at::Tensor score_entropy(const at::Tensor& log_score, const at::Tensor& sigma, const at::Tensor& x,
                           const at::Tensor& x0) const override {
    const auto n = static_cast<double>(tokens_);
    const at::Tensor e = at::expm1(sigma).unsqueeze(-1);
    const at::Tensor q = e / (e + n);
    const auto at_state = [](const at::Tensor& values, const at::Tensor& state) {
      return values.gather(-1, state.unsqueeze(-1)).squeeze(-1);
    };
    const auto mean_of_others = [&](const at::Tensor& values) { return values.mean(-1) - at_state(values, x) / n; };

    const at::Tensor stayed = x.eq(x0);
    const at::Tensor mean_log = mean_of_others(log_score);
    const at::Tensor negative = at::where(stayed, q * mean_log, at_state(log_score, x0) / e + mean_log);
    const at::Tensor constant =
        at::where(stayed, q * (q.log() - 1) * ((n - 1) / n), ((q.log() + 1).neg() / q - (n - 2)) / n);
    return mean_of_others(at::exp(log_score)) - negative + constant;
  }

  at::Tensor transposed_rate(const at::Tensor& x, at::ScalarType type) const override {
    return at::one_hot(x, tokens_).to(type).neg() + 1.0 / static_cast<double>(tokens_);
  }

  at::Tensor transposed_transition(const at::Tensor& x, const at::Tensor& sigma) const override {
    const at::Tensor each = at::expm1(-sigma).neg().view({-1, 1, 1}) / static_cast<double>(tokens_);
    return each + at::exp(-sigma).view({-1, 1, 1}) * at::one_hot(x, tokens_);
  }

  at::Tensor staggered_score(const at::Tensor& score, const at::Tensor& dsigma) const override {
    const at::Tensor growth = at::exp(dsigma).view({-1, 1, 1});
    const at::Tensor spread = at::expm1(dsigma).neg().view({-1, 1, 1}) / static_cast<double>(tokens_);
    return spread * score.sum(-1, /*keepdim=*/true) + score * growth;
  }

 private:
  int64_t tokens_;
};

}  // namespace

std::unique_ptr<Graph> make_graph(const GraphConfig& config, int64_t tokens) {
  if (config.kind == GraphKind::kUniform) return std::make_unique<UniformGraph>(tokens);
  return std::make_unique<AbsorbingGraph>(tokens);
}

at::Tensor reverse_rate(const Graph& graph, const at::Tensor& x, const at::Tensor& score) {
  const at::Tensor state = x.unsqueeze(-1);
  const at::Tensor rate = (graph.transposed_rate(x, score.scalar_type()) * score).scatter(-1, state, 0);
  return rate.scatter(-1, state, -rate.sum(-1, /*keepdim=*/true));
}

at::Tensor sample_categorical(const at::Tensor& weights, const at::Tensor& uniform) {
  const at::Tensor cumulative = at::cumsum(weights.clamp_min(0), -1);
  const at::Tensor target = cumulative.select(-1, -1) * uniform;
  return cumulative.le(target.unsqueeze(-1)).sum(-1).clamp_max(weights.size(-1) - 1);
}

// ---- Training objective ------------------------------------------------------------------------------------------

namespace {

constexpr double kMinTime = 1e-3;
constexpr double kMinNoiseFactor = 0.1;
constexpr double kExponentialRate = 3;

double progress_of(const CurriculumConfig& config, int64_t step) {
  return static_cast<double>(step) / static_cast<double>(config.preschool_time);
}

// The preference for times with little noise, from 1 at the first step to 0 at preschool_time.
double time_bias(const CurriculumConfig& config, double progress) {
  switch (config.ramp) {
    case CurriculumRamp::kExponential:
      return std::exp(-config.bias_strength * progress);
    case CurriculumRamp::kCosine:
      return (1 + std::cos(std::numbers::pi * progress)) / 2;
    case CurriculumRamp::kLinear:
      break;
  }
  return 1 - progress;
}

}  // namespace

at::Tensor position_losses(const LogScore& log_score, const Graph& graph, const NoiseConfig& noise,
                           const NoiseDraw& draw) {
  const at::Tensor sigma = total_noise(noise, draw.time);
  const at::Tensor x = graph.sample_transition(draw.tokens, sigma * draw.noise_factor, draw.move, draw.replacement);
  const at::Tensor entropy = graph.score_entropy(log_score(x, sigma), sigma, x, draw.tokens);
  return entropy * noise_rate(noise, draw.time).unsqueeze(-1);
}

double curriculum_noise_factor(const CurriculumConfig& config, int64_t step) {
  if (!config.enabled || config.probabilistic) return 1;
  const double progress = progress_of(config, step);
  double reached = std::min(progress, 1.0);
  if (config.ramp == CurriculumRamp::kExponential) reached = 1 - std::exp(-kExponentialRate * progress);
  if (config.ramp == CurriculumRamp::kCosine) reached = (1 - std::cos(std::numbers::pi * reached)) / 2;
  return kMinNoiseFactor + (1 - kMinNoiseFactor) * reached;
}

at::Tensor curriculum_times(const CurriculumConfig& config, const at::Tensor& uniform, int64_t step) {
  if (!config.enabled || !config.probabilistic || step >= config.preschool_time) return sample_times(uniform);
  const double bias = time_bias(config, progress_of(config, step));
  return at::pow(uniform, 1 + bias * config.bias_strength) * (1 - 2 * kMinTime) + kMinTime;
}

at::Tensor sample_times(const at::Tensor& uniform) { return uniform * (1 - kMinTime) + kMinTime; }

}  // namespace oarlock::protein_diffusion
