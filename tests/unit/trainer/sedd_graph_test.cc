// Noise and graphs of SEDD: against what the original computed, and against closed forms.
#include "workloads/protein_diffusion/graph.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_matrix_exp.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <cmath>
#include <numbers>

#include "tests/unit/trainer/sedd_golden.h"

namespace oarlock::protein_diffusion {
namespace {

using test::expect_close;
using test::sedd_golden;
using test::SeddGolden;

constexpr GraphConfig kAbsorb{GraphKind::kAbsorb};
constexpr GraphConfig kUniform{GraphKind::kUniform};

std::unique_ptr<Graph> graph_of(const SeddGolden& golden) {
  return make_graph(golden.config["graph"]["type"] == "absorb" ? kAbsorb : kUniform, golden.config["tokens"]);
}

NoiseConfig noise_of(const SeddGolden& golden) {
  if (golden.config["noise"]["type"] == "loglinear") return {};
  return {.kind = NoiseKind::kGeometric, .sigma_min = 1e-4, .sigma_max = 20};
}

class SeddGoldens : public testing::TestWithParam<const char*> {
 protected:
  SeddGolden golden_ = sedd_golden(GetParam());
  std::unique_ptr<Graph> graph_ = graph_of(golden_);
};

TEST_P(SeddGoldens, Noise) {
  expect_close(total_noise(noise_of(golden_), golden_["t"]), golden_["sigma"], "sigma");
  expect_close(noise_rate(noise_of(golden_), golden_["t"]), golden_["dsigma"], "dsigma");
}

TEST_P(SeddGoldens, ScoreEntropyAndLoss) {
  const at::Tensor entropy =
      graph_->score_entropy(golden_["log_score"], golden_["sigma"], golden_["xt"], golden_["x0"]);
  expect_close(entropy, golden_["score_entropy"], "score entropy");
  expect_close((entropy * golden_["dsigma"].unsqueeze(-1)).sum(-1), golden_["loss"], "loss");
}

TEST_P(SeddGoldens, TheDeterministicHalfOfASamplingStep) {
  const at::Tensor score = at::exp(golden_["log_score"]);
  const at::Tensor& dsigma = golden_["step_dsigma"];
  expect_close(reverse_rate(*graph_, golden_["xt"], score), golden_["reverse_rate"], "reverse rate");
  const at::Tensor staggered = graph_->staggered_score(score, dsigma);
  expect_close(staggered, golden_["staggered_score"], "staggered score");
  expect_close(staggered * graph_->transposed_transition(golden_["xt"], dsigma), golden_["analytic_probs"],
               "analytic probabilities");
}

INSTANTIATE_TEST_SUITE_P(Original, SeddGoldens, testing::Values("absorb_loglinear", "uniform_geometric"));

at::Tensor doubles(std::initializer_list<double> values) {
  return at::tensor(at::ArrayRef<double>(values), at::kDouble);
}

TEST(SeddNoise, RatesAreDerivatives) {
  const at::Tensor t = at::linspace(0.01, 0.99, 50, at::kDouble);
  constexpr double kStep = 1e-6;
  for (const NoiseConfig& noise :
       {NoiseConfig{}, NoiseConfig{.kind = NoiseKind::kGeometric, .sigma_min = 1e-3, .sigma_max = 20},
        NoiseConfig{.kind = NoiseKind::kCosine, .sigma_min = 1e-4, .sigma_max = 0.8}}) {
    const at::Tensor slope = (total_noise(noise, t + kStep) - total_noise(noise, t - kStep)) / (2 * kStep);
    expect_close(noise_rate(noise, t), slope, "rate", 1e-7);
  }
}

TEST(SeddNoise, ValuesOfTheClosedForms) {
  const at::Tensor t = doubles({0, 0.5, 1});
  expect_close(total_noise({}, t), doubles({0, -std::log(0.5005), -std::log(1e-3)}), "loglinear", 1e-12);
  const NoiseConfig geometric{.kind = NoiseKind::kGeometric, .sigma_min = 1e-4, .sigma_max = 20};
  expect_close(total_noise(geometric, t), doubles({1e-4, std::sqrt(20e-4), 20}), "geometric", 1e-12);
  const NoiseConfig cosine{.kind = NoiseKind::kCosine, .sigma_min = 1e-4, .sigma_max = 0.8};
  expect_close(total_noise(cosine, t), doubles({1e-4, 0.40005, 0.8}), "cosine", 1e-12);
  expect_close(noise_rate(cosine, t), doubles({0, std::numbers::pi / 2 * 0.7999, 0}), "cosine's rate", 1e-12);
}

// Returns the rate matrix Q: its rows are the transposed rates that the graph returns for each state.
at::Tensor rate_matrix(const Graph& graph) {
  return graph.transposed_rate(at::arange(graph.states(), at::kLong), at::kDouble);
}

TEST(SeddGraph, TransitionsAreTheExponentialOfTheRates) {
  for (const GraphConfig& config : {kAbsorb, kUniform}) {
    const auto graph = make_graph(config, 6);
    const at::Tensor states = at::arange(graph->states(), at::kLong).unsqueeze(0);
    const at::Tensor q = rate_matrix(*graph);
    // Tokens leave their state with what comes into others: the columns sum to 0.
    EXPECT_LT(q.sum(0).abs().max().item<double>(), 1e-14);
    for (const double sigma : {0.01, 0.7, 5.0}) {
      const at::Tensor transition = graph->transposed_transition(states, doubles({sigma}))[0];
      expect_close(transition, at::linalg_matrix_exp(q * sigma), "transition", 1e-12);
      expect_close(transition.sum(0), at::ones({graph->states()}, at::kDouble), "probability", 1e-12);
    }
  }
}

// With the ratios of a distribution at noise sigma, a staggered score is the ratio to the distribution at less noise.
TEST(SeddGraph, StaggeredScoresAreExact) {
  for (const GraphConfig& config : {kAbsorb, kUniform}) {
    const auto graph = make_graph(config, 4);
    const at::Tensor q = rate_matrix(*graph);
    at::Tensor p0 = at::rand({graph->states()}, at::kDouble);
    if (graph->absorbing()) p0[-1] = 0;
    p0 = p0 / p0.sum();
    const at::Tensor now = at::linalg_matrix_exp(q * 0.9).matmul(p0);
    const at::Tensor before = at::linalg_matrix_exp(q * 0.6).matmul(p0);
    const at::Tensor score = (now / now[-1]).view({1, 1, -1});
    expect_close(graph->staggered_score(score, doubles({0.3})), (before / now[-1]).view({1, 1, -1}), "staggered",
                 1e-12);
  }
}

// p(y | x0) / p(x | x0) at noise sigma, [n, length, states].
at::Tensor true_ratios(const Graph& graph, const at::Tensor& x0, const at::Tensor& x, double sigma) {
  const at::Tensor from_x0 = at::embedding(at::linalg_matrix_exp(rate_matrix(graph) * sigma).t(), x0);
  return from_x0 / from_x0.gather(-1, x.unsqueeze(-1));
}

TEST(SeddGraph, ScoreEntropyIsZeroAtTheTrueRatiosAndPositiveElsewhere) {
  torch::manual_seed(1);
  for (const GraphConfig& config : {kAbsorb, kUniform}) {
    const auto graph = make_graph(config, 7);
    const at::Tensor x0 = at::randint(7, {40, 12}, at::kLong);
    for (const double sigma : {0.02, 0.4, 0.6, 3.0}) {
      const at::Tensor sigmas = at::full({40}, sigma, at::kDouble);
      const at::Tensor x = graph->sample_transition(x0, sigmas, at::rand(x0.sizes()), at::rand(x0.sizes()));
      // A ratio of 0 has no logarithm: e^-80 stands for it.
      const at::Tensor ratios = true_ratios(*graph, x0, x, sigma).log().clamp_min(-80);
      const at::Tensor entropy = graph->score_entropy(ratios, sigmas, x, x0);
      EXPECT_LT(entropy.abs().max().item<double>(), 1e-9 / sigma) << sigma;

      const at::Tensor elsewhere = graph->score_entropy(ratios + at::randn_like(ratios) * 0.1, sigmas, x, x0);
      const at::Tensor matters = graph->absorbing() ? x.eq(7) : at::ones(x.sizes(), at::kBool);
      EXPECT_GT(elsewhere.masked_select(matters).min().item<double>(), 0) << sigma;
      EXPECT_EQ(elsewhere.masked_select(matters.logical_not()).abs().sum().item<double>(), 0);
    }
  }
}

// With a score that depends only on the number of tokens, the loss of a token is (1 - eps) ln(tokens) at every time:
// the mean of rate * entropy over the noise at time t.
TEST(SeddGraph, AnUntrainedScoreCostsTheLogarithmOfTheTokens) {
  for (const auto& [tokens, expected] : {std::pair{36, 3.580}, {20, 2.993}, {50257, 10.814}}) {
    const auto graph = make_graph(kAbsorb, tokens);
    for (const double time : {1e-3, 0.3, 0.9}) {
      const at::Tensor t = doubles({time});
      const at::Tensor sigma = total_noise({}, t);
      const at::Tensor log_score =
          at::zeros({1, 1, tokens + 1}, at::kDouble) - at::expm1(sigma).log() - std::log(tokens);
      const at::Tensor masked = at::full({1, 1}, tokens, at::kLong);
      const at::Tensor entropy = graph->score_entropy(log_score, sigma, masked, at::zeros({1, 1}, at::kLong));
      const double cost = (noise_rate({}, t) * at::expm1(-sigma).neg() * entropy[0][0]).item<double>();
      EXPECT_NEAR(cost, 0.999 * std::log(tokens), 1e-9);
      EXPECT_NEAR(cost, expected, 5e-4);
    }
  }
}

// The lowest loss on independent residues with distribution p is (1 - eps) H(p), which the score for p reaches.
TEST(SeddGraph, TheFloorOfIndependentResiduesIsTheirEntropy) {
  const at::Tensor p = doubles({0.5, 0.25, 0.15, 0.1});
  const double entropy_of_p = -(p * p.log()).sum().item<double>();
  const auto graph = make_graph(kAbsorb, 4);
  const at::Tensor x0 = at::arange(4, at::kLong).unsqueeze(0);
  const at::Tensor masked = at::full({1, 4}, 4, at::kLong);
  for (const double time : {1e-3, 0.3, 0.9}) {
    const at::Tensor t = doubles({time});
    const at::Tensor sigma = total_noise({}, t);
    const auto cost_of = [&](const at::Tensor& q) {
      const at::Tensor ratios = (q.log() - at::expm1(sigma).log()).expand({1, 4, 4});
      const at::Tensor log_score = at::cat({ratios, at::zeros({1, 4, 1}, at::kDouble)}, -1);
      const at::Tensor expected = (graph->score_entropy(log_score, sigma, masked, x0)[0] * p).sum();
      return (noise_rate({}, t) * at::expm1(-sigma).neg() * expected).item<double>();
    };
    EXPECT_NEAR(cost_of(p), 0.999 * entropy_of_p, 1e-12);
    EXPECT_GT(cost_of(doubles({0.45, 0.3, 0.15, 0.1})), 0.999 * entropy_of_p + 1e-3);
  }
}

TEST(SeddGraph, NoiseMovesAsManyTokensAsItShould) {
  torch::manual_seed(2);
  const at::Tensor x0 = at::randint(9, {400, 500}, at::kLong);
  const at::Tensor sigma = at::full({400}, 0.3);
  const double chance = 1 - std::exp(-0.3);
  const at::Tensor masked = make_graph(kAbsorb, 9)->sample_transition(x0, sigma, at::rand(x0.sizes()), {});
  EXPECT_NEAR(masked.eq(9).to(at::kDouble).mean().item<double>(), chance, 5e-3);
  EXPECT_TRUE(masked.eq(9).logical_or(masked.eq(x0)).all().item<bool>());

  const at::Tensor replaced =
      make_graph(kUniform, 9)->sample_transition(x0, sigma, at::rand(x0.sizes()), at::rand(x0.sizes()));
  EXPECT_NEAR(replaced.ne(x0).to(at::kDouble).mean().item<double>(), chance * 8 / 9, 5e-3);
  EXPECT_GE(replaced.min().item<int64_t>(), 0);
  EXPECT_LT(replaced.max().item<int64_t>(), 9);
}

TEST(SeddGraph, WhatIsNotMaskedCannotSpoilTheGradient) {
  const auto graph = make_graph(kAbsorb, 3);
  const at::Tensor log_score = at::full({1, 2, 4}, 1000.0, at::kFloat).set_requires_grad(true);
  const at::Tensor x = at::tensor({0, 3}, at::kLong).unsqueeze(0);
  const at::Tensor entropy = graph->score_entropy(log_score - at::tensor({0.F, 1000.F}).view({1, 2, 1}),
                                                  at::full({1}, 0.5), x, at::zeros({1, 2}, at::kLong));
  entropy.sum().backward();
  EXPECT_TRUE(log_score.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(log_score.grad()[0][0].eq(0).all().item<bool>());
}

TEST(Categorical, DrawsByTheWeights) {
  torch::manual_seed(3);
  const at::Tensor weights = at::tensor({0.F, 1.F, -2.F, 3.F, 0.F, 4.F, 0.F}).expand({100, 1000, 7});
  const at::Tensor drawn = sample_categorical(weights, at::rand({100, 1000}));
  const at::Tensor shares = drawn.flatten().bincount({}, 7).to(at::kDouble) / 1e5;
  expect_close(shares, doubles({0, 0.125, 0, 0.375, 0, 0.5, 0}), "shares", 0.01);
  for (const int64_t never : {0, 2, 4, 6}) EXPECT_EQ(shares[never].item<double>(), 0);

  const at::Tensor ends = at::tensor({0.F, 0x1.fffffep-1F}).unsqueeze(0);  // the least and the greatest number
  const at::Tensor at_ends = sample_categorical(weights.slice(0, 0, 1).slice(1, 0, 2), ends);
  EXPECT_EQ(at_ends[0][0].item<int64_t>(), 1);
  EXPECT_EQ(at_ends[0][1].item<int64_t>(), 5);
}

}  // namespace
}  // namespace oarlock::protein_diffusion
