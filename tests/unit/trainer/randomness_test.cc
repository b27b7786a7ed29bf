// The run's random numbers depend on seed, rank and step only, and not on earlier steps.
#include "trainer/engine/train_step.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <set>

#include "ddp/seed_step.h"

namespace oarlock {
namespace {

at::Tensor draw(uint64_t seed, int rank, int64_t step) {
  seed_step(seed, rank, step, c10::kCPU);
  return at::rand({4});
}

TEST(Randomness, StepIsIndependentOfEarlierSteps) {
  const at::Tensor first = draw(7, 1, 30);
  draw(7, 1, 31);
  at::rand({1000});
  EXPECT_TRUE(at::equal(draw(7, 1, 30), first));
}

TEST(Randomness, DependsOnSeedRankAndStep) {
  const at::Tensor base = draw(7, 1, 30);
  EXPECT_FALSE(at::equal(draw(8, 1, 30), base));
  EXPECT_FALSE(at::equal(draw(7, 2, 30), base));
  EXPECT_FALSE(at::equal(draw(7, 1, 31), base));
  EXPECT_FALSE(at::equal(draw(7, 30, 1), base));
}

TEST(Randomness, EpochSeedsAreUnique) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (int64_t epoch = 0; epoch < 50; ++epoch) seen.insert(epoch_seed(seed, epoch));
  }
  EXPECT_EQ(seen.size(), 1000U);
}

TEST(Randomness, ModelSeedMatchesTorch) {
  seed_model(5);
  const at::Tensor first = at::rand({4});
  seed_model(5);
  EXPECT_TRUE(at::equal(at::rand({4}), first));
}

}  // namespace
}  // namespace oarlock
