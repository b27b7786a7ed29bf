// Sampling and curriculum of SEDD: the deterministic half against the original, the whole with exact scores.
#include "workloads/protein_diffusion/sampling.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <numeric>

#include "tests/unit/trainer/sedd_golden.h"
#include "workloads/protein_diffusion/graph.h"

namespace oarlock::protein_diffusion {
namespace {

using test::expect_close;
using test::sedd_golden;
using test::SeddGolden;

TEST(SeddSampler, WeightsAreTheOriginals) {
  for (const auto& [name, kind] :
       {std::pair{"absorb_loglinear", GraphKind::kAbsorb}, {"uniform_geometric", GraphKind::kUniform}}) {
    SCOPED_TRACE(name);
    const SeddGolden golden = sedd_golden(name);
    const auto graph = make_graph({kind}, golden.config["tokens"]);
    const at::Tensor& x = golden["xt"];
    const at::Tensor score = at::exp(golden["log_score"]);
    expect_close(analytic_weights(*graph, x, score, golden["step_dsigma"]), golden["analytic_probs"], "analytic");
    const at::Tensor euler = euler_weights(*graph, x, score, golden["dsigma"], 0.01);
    const at::Tensor expected =
        at::one_hot(x, graph->states()) + golden["reverse_rate"] * golden["dsigma"].view({-1, 1, 1}) * 0.01;
    expect_close(euler, expected, "euler");
    const at::Tensor denoising = denoising_weights(*graph, x, score, golden["step_dsigma"]);
    expect_close(denoising, golden["analytic_probs"].slice(-1, 0, denoising.size(-1)), "denoising");
    EXPECT_EQ(denoising.size(-1), 25) << "no mask";
  }
}

// Independent residues with this distribution, and the exact score of a sequence of them.
const at::Tensor& distribution() {
  static const at::Tensor p = at::tensor({0.4F, 0.3F, 0.2F, 0.1F});
  return p;
}

at::Tensor absorbing_score(const at::Tensor& x, const at::Tensor& sigma) {
  const at::Tensor ratios = distribution().log() - at::expm1(sigma).log().view({-1, 1, 1});
  const at::Tensor all = at::cat({ratios, at::zeros_like(ratios.slice(-1, 0, 1))}, -1);
  return all.expand({x.size(0), x.size(1), 5}).scatter(-1, x.unsqueeze(-1), 0);
}

// p_sigma = e^-sigma p + (1 - e^-sigma) / 4
at::Tensor uniform_score(const at::Tensor& x, const at::Tensor& sigma) {
  const at::Tensor stays = at::exp(-sigma).view({-1, 1, 1});
  const at::Tensor now = (stays * distribution() + (1 - stays) / 4).expand({x.size(0), x.size(1), 4});
  return (now / now.gather(-1, x.unsqueeze(-1))).log();
}

struct SamplerCase {
  GraphKind graph;
  Predictor predictor;
  NoiseConfig noise;
};

class ExactScores : public testing::TestWithParam<SamplerCase> {};

TEST_P(ExactScores, GiveTheDataBack) {
  const auto graph = make_graph({GetParam().graph}, 4);
  const SamplerConfig sampler{.predictor = GetParam().predictor, .steps = 100};
  const LogScore score = GetParam().graph == GraphKind::kAbsorb ? absorbing_score : uniform_score;
  std::vector<int64_t> seeds(64);
  std::iota(seeds.begin(), seeds.end(), 100);
  const at::Tensor samples = sample_sequences(sampler, *graph, GetParam().noise, score, seeds, 128, at::kCPU);
  ASSERT_EQ(samples.sizes(), (at::IntArrayRef{64, 128}));
  EXPECT_LT(samples.max().item<int64_t>(), 4) << "no mask";
  const at::Tensor shares = samples.flatten().bincount({}, 4).to(at::kFloat) / (64 * 128);
  expect_close(shares, distribution(), "shares", 0.04);

  // A sequence is its seed's, whatever it is sampled with.
  const at::Tensor alone = sample_sequences(sampler, *graph, GetParam().noise, score, {&seeds[9], 1}, 128, at::kCPU);
  EXPECT_TRUE(at::equal(alone[0], samples[9]));
  EXPECT_FALSE(at::equal(samples[8], samples[9]));
}

INSTANTIATE_TEST_SUITE_P(
    Chains, ExactScores,
    testing::Values(
        SamplerCase{GraphKind::kAbsorb, Predictor::kEuler, {}},
        SamplerCase{GraphKind::kAbsorb, Predictor::kAnalytic, {}},
        SamplerCase{GraphKind::kAbsorb, Predictor::kEuler, {.kind = NoiseKind::kCosine, .sigma_max = 6}},
        SamplerCase{GraphKind::kUniform, Predictor::kEuler, {.kind = NoiseKind::kGeometric, .sigma_max = 8}},
        SamplerCase{GraphKind::kUniform, Predictor::kAnalytic, {.kind = NoiseKind::kGeometric, .sigma_max = 8}}));

TEST(SeddSampler, WithoutNoiseRemovalMasksMayStay) {
  const auto graph = make_graph({GraphKind::kAbsorb}, 4);
  const std::vector<int64_t> seeds = {1, 2, 3, 4};
  const SamplerConfig few{.predictor = Predictor::kAnalytic, .steps = 1, .noise_removal = false};
  const NoiseConfig little{.kind = NoiseKind::kCosine, .sigma_min = 1, .sigma_max = 2};
  const at::Tensor samples = sample_sequences(few, *graph, little, absorbing_score, seeds, 64, at::kCPU);
  EXPECT_GT(samples.eq(4).sum().item<int64_t>(), 0);
}

// Values of the fork's formulas at steps of 10,000.
TEST(SeddCurriculum, ReducesTheNoiseAsTheFork) {
  CurriculumConfig config{.enabled = true};
  EXPECT_DOUBLE_EQ(curriculum_noise_factor(config, 0), 0.1);
  EXPECT_DOUBLE_EQ(curriculum_noise_factor(config, 5'000), 0.55);
  EXPECT_DOUBLE_EQ(curriculum_noise_factor(config, 10'000), 1);
  EXPECT_DOUBLE_EQ(curriculum_noise_factor(config, 99'999), 1);
  config.ramp = CurriculumRamp::kExponential;
  EXPECT_DOUBLE_EQ(curriculum_noise_factor(config, 5'000), 0.1 + 0.9 * (1 - std::exp(-1.5)));
  config.ramp = CurriculumRamp::kCosine;
  EXPECT_DOUBLE_EQ(curriculum_noise_factor(config, 5'000), 0.55);
  EXPECT_NEAR(curriculum_noise_factor(config, 2'500), 0.1 + 0.9 * (1 - std::sqrt(0.5)) / 2, 1e-12);
  config.enabled = false;
  EXPECT_DOUBLE_EQ(curriculum_noise_factor(config, 0), 1);
}

TEST(SeddCurriculum, BiasesTimesAsTheFork) {
  const at::Tensor u = at::tensor({0.0, 0.5, 0.999});
  CurriculumConfig config{.enabled = true, .probabilistic = true};
  EXPECT_DOUBLE_EQ(curriculum_noise_factor(config, 0), 1);
  expect_close(curriculum_times(config, u, 0), u.pow(3) * 0.998 + 0.001, "at first", 1e-12);
  expect_close(curriculum_times(config, u, 5'000), u.pow(2) * 0.998 + 0.001, "half way", 1e-12);
  expect_close(curriculum_times(config, u, 10'000), u * 0.999 + 0.001, "afterwards", 1e-12);
  config.ramp = CurriculumRamp::kExponential;
  expect_close(curriculum_times(config, u, 5'000), u.pow(1 + 2 * std::exp(-1.0)) * 0.998 + 0.001, "exponential", 1e-12);
  config.enabled = false;
  expect_close(curriculum_times(config, u, 0), u * 0.999 + 0.001, "without", 1e-12);
}

}  // namespace
}  // namespace oarlock::protein_diffusion
