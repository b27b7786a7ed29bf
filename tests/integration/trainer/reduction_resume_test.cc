// A resumed run gets the same bits as an uninterrupted one, even if they depend on earlier reductions: on the state of
// PowerSGD, and with three ranks on the assignment of gradients to buckets.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/integration/trainer/run_support.h"

namespace oarlock {
namespace {

using test::bits_of;
using test::eventually;
using test::TemporaryDirectory;
using test::TrainerRanks;
using test::undisturbed;
using testing::Each;
using testing::HasSubstr;

constexpr char kReset[] = "PowerSGD starts with plain averaging: its state cannot be restored";

// Several buckets whose order changes when they are rebuilt, and dropout, so that random numbers matter, too.
std::string config_with(const std::string& ddp, const std::string& more = "") {
  return fmt::format(
      "task: tiny\nsteps: 160\nbatch: {{size: 12}}\nmodel: {{hidden: 64, batch_norm: false}}\nseed: 9\n"
      "optimizer: {{lr: 0.01}}\neval: {{every_epochs: 0}}\ncheckpoint: {{every_steps: 10, every_epochs: 0}}\n"
      "ddp: {{bucket_cap_mb: 0.001, {}}}\n{}",
      ddp, more);
}

std::string powersgd(const std::string& options) {
  return fmt::format("comm_hook: powersgd, powersgd: {{start_powerSGD_iter: 3, {}}}", options);
}

std::string run(int world_size, const std::string& config, const TemporaryDirectory& directory) {
  return undisturbed(world_size, config, directory.path());
}

// Kills all ranks after the checkpoint of step 20, and resumes to the end.
std::string killed_and_resumed(int world_size, const std::string& config, const TemporaryDirectory& directory) {
  {
    TrainerRanks ranks(world_size, {.config = config,
                                    .arguments = {"--checkpoint-dir", directory.path().string()},
                                    .environment = {},
                                    .directory = {}});
    EXPECT_TRUE(eventually([&] { return find_latest_checkpoint(directory.path())->step >= 20; }));
    for (int rank = 0; rank < world_size; ++rank) ranks.rank(rank).signal(SIGKILL);
    EXPECT_EQ(ranks.wait().back(), 128 + SIGKILL) << "it must not have been over already";
  }
  return run(world_size, config, directory);
}

void expect_same_bits(int world_size, const std::string& config) {
  const TemporaryDirectory whole;
  const TemporaryDirectory parts;
  EXPECT_EQ(killed_and_resumed(world_size, config, parts), run(world_size, config, whole)) << config;
}

TEST(ReductionResume, RestoresPowerSgdState) {
  expect_same_bits(2, config_with(powersgd("matrix_approximation_rank: 2, min_compression_rate: 1")));
  expect_same_bits(3, config_with(powersgd("matrix_approximation_rank: 1")));
}

TEST(ReductionResume, RestoresPowerSgdRandomNumbersWithoutWarmStart) {
  expect_same_bits(2, config_with(powersgd("warm_start: false")));
}

// The first pass of a static graph differs from later ones, and with accumulation reduces once more.
TEST(ReductionResume, DoesNotRecordStaticGraphAgain) {
  const std::string accumulates = "gradient: {accumulation_steps: 2}\n";
  expect_same_bits(2, config_with("static_graph: true, " + powersgd("matrix_approximation_rank: 1"), accumulates));
  for (const char* way : {"shared_memory: true", "shared_memory: false"})
    expect_same_bits(3, config_with(fmt::format("static_graph: true, {}", way), accumulates));
}

TEST(ReductionResume, RestoresSummationOrderOfThreeRanks) {
  for (const char* way : {"shared_memory: true", "shared_memory: false", "comm_hook: fp16"})
    expect_same_bits(3, config_with(way));
}

// Verifies that the tests above depend on the saved state.
TEST(ReductionResume, BitsDifferWithoutState) {
  const TemporaryDirectory whole;
  const TemporaryDirectory parts;
  const std::string config = config_with(powersgd("save_state: false"));
  const std::string expected = run(2, config, whole);
  EXPECT_THAT(expected, testing::Not(HasSubstr("reduction/")));
  EXPECT_NE(killed_and_resumed(2, config, parts), expected);
}

void expect_finite_reduction(const std::filesystem::path& directory) {
  const auto checkpoint = read_checkpoint(directory);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_TRUE(checkpoint->tensors.contains("reduction"));
  for (const auto& [name, tensor] : checkpoint->tensors.at("reduction"))
    EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << directory << ": " << name;
}

// A NaN in the error feedback would make every later gradient NaN. The skipped step is the last one before a save.
TEST(ReductionResume, SkippedStepLeavesPowerSgdStateFinite) {
  const TemporaryDirectory directory;
  const std::string config = config_with(powersgd("matrix_approximation_rank: 2, min_compression_rate: 1"),
                                         "nonfinite: {loss: skip, gradient: skip}\n");
  const auto train = [&](std::vector<std::string> arguments, int steps, int skipped) {
    arguments.insert(arguments.end(),
                     {"steps=" + std::to_string(steps), "--checkpoint-dir", directory.path().string()});
    TrainerRanks ranks(2, {.config = config, .arguments = arguments, .environment = {}, .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    EXPECT_EQ(ranks.log_line(0, "training is complete")["step"], steps);
    EXPECT_EQ(ranks.log_line(0, "skipped steps with a non-finite loss or gradient").value("steps", 0), skipped);
  };
  train({"model.fault.kind=nan", "model.fault.rank=1", "model.fault.step=9"}, 20, 1);
  expect_finite_reduction(directory.path() / "step-00000010");
  expect_finite_reduction(directory.path() / "step-00000020");
  train({}, 40, 0);
  expect_finite_reduction(directory.path() / "step-00000040");
}

TEST(ReductionResume, LogsWhyStateIsDropped) {
  const auto steps = [](int count) { return fmt::format("steps: {}\n", count); };
  const auto config = [&](int count, const std::string& ddp) {
    std::string out = config_with(ddp);
    return out.replace(out.find("steps: 160\n"), 11, steps(count));
  };
  struct Change {
    int ranks_after;
    std::string before, after, reason;
  };
  const std::string plain = powersgd("matrix_approximation_rank: 1");
  for (const Change& change : {
           Change{3, plain, plain, "the checkpoint is of 2 ranks, this run has 3"},
           Change{2, plain, powersgd("matrix_approximation_rank: 2"), "powersgd has been changed"},
           Change{2, plain, plain + ", static_graph: true", "the gradient buckets have changed"},
           Change{2, plain, "comm_hook: none", "comm_hook has been changed"},
           Change{2, "comm_hook: none", plain, "the checkpoint has no PowerSGD state"},
       }) {
    const TemporaryDirectory directory;
    run(2, config(10, change.before), directory);
    TrainerRanks ranks(change.ranks_after, {.config = config(20, change.after),
                                            .arguments = {"--checkpoint-dir", directory.path().string()},
                                            .environment = {},
                                            .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    EXPECT_EQ(ranks.log_line(0, kReset)["reason"], change.reason);
    EXPECT_EQ(ranks.log_line(0, "training is complete")["step"], 20);
  }
  const TemporaryDirectory directory;  // no warning if all state is restored
  run(2, config(10, plain), directory);
  TrainerRanks ranks(2, {.config = config(20, plain),
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  EXPECT_TRUE(ranks.log_line(0, kReset).empty());
}

}  // namespace
}  // namespace oarlock
