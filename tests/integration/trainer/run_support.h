// Common functions of the tests that run the trainer program.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/rank_harness.h"
#include "tests/support/temporary_directory.h"
#include "trainer/checkpoint/store.h"

namespace oarlock::test {

// The program oarlock-trainer, with the built-in tasks. The default program of TrainerRanks has the task "tiny", too.
inline const std::string kTrainer = test::program_path("oarlock-trainer");
inline TrainerOptions trainer_options(const std::string& config, std::vector<std::string> arguments = {}) {
  return {.config = config, .arguments = std::move(arguments), .environment = {}, .directory = {}, .program = kTrainer};
}

// The configuration of a run that does not end before the test stops it.
inline constexpr char kLong[] =
    "task: tiny\nsteps: 1000000\nbatch: {size: 16}\neval: {every_epochs: 0}\nlog: {every_steps: 10}\n";

inline double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns a text with a hash of every tensor of a checkpoint: equal texts mean bitwise equal checkpoints.
inline std::string bits_of(const std::filesystem::path& directory) {
  const auto checkpoint = read_checkpoint(directory);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  std::ostringstream out;
  if (!checkpoint) return "";
  out << "step " << checkpoint->state.step << " epoch " << checkpoint->state.epoch << "+"
      << checkpoint->state.epoch_samples << "\n";
  out << checkpoint->state.sections.dump() << "\n";
  for (const auto& [section, tensors] : checkpoint->tensors) {
    for (const auto& [name, tensor] : tensors) {
      const auto* bytes = static_cast<const unsigned char*>(tensor.data_ptr());
      uint64_t hash = 1469598103934665603ULL;  // FNV-1a
      for (size_t i = 0; i < tensor.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211ULL;
      out << section << "/" << name << " " << tensor.sizes() << " " << std::hex << hash << std::dec << "\n";
    }
  }
  return out.str();
}

// Waits until the job has completed this number of steps. Returns false after a timeout.
inline bool wait_for_step(TrainerRanks& ranks, int64_t step) {
  const int port = ranks.metrics_port(0);
  return eventually([&] {
    const auto status = rank_status_from_json(http_get(port, kStatusPath));
    return status && status->step >= step;
  });
}

// Runs the trainer without interruption, and returns bits_of() its last checkpoint.
inline std::string undisturbed(int world_size, const std::string& config, const std::filesystem::path& directory) {
  TrainerRanks ranks(
      world_size,
      {.config = config, .arguments = {"--checkpoint-dir", directory.string()}, .environment = {}, .directory = {}});
  for (const int code : ranks.wait()) EXPECT_EQ(code, 0);
  return bits_of(*find_latest_checkpoint(directory)->directory);
}

// Runs two ranks with the options `undisturbed`, and two more with the options `killed`, which may differ only in the
// paths of files. The latter are killed after `kill_after` of their `steps` steps and resume. The last checkpoints of
// both runs must be bitwise equal.
inline void expect_killed_run_equals(const TrainerOptions& undisturbed, const TrainerOptions& killed,
                                     int64_t kill_after, int64_t steps) {
  const auto with_checkpoints = [](TrainerOptions options, const TemporaryDirectory& directory) {
    options.arguments.insert(options.arguments.end(),
                             {"--checkpoint-dir", directory.path().string(), "--metrics-port", "auto"});
    return options;
  };
  const auto run_to_the_end = [](const TrainerOptions& options) {
    TrainerRanks ranks(2, options);
    EXPECT_THAT(ranks.wait(), testing::Each(0)) << ranks.rank(0).err();
  };
  const TemporaryDirectory directory;
  run_to_the_end(with_checkpoints(undisturbed, directory));

  const TemporaryDirectory directory_of_killed;
  const TrainerOptions to_kill = with_checkpoints(killed, directory_of_killed);
  {
    TrainerRanks ranks(2, to_kill);
    EXPECT_TRUE(wait_for_step(ranks, kill_after));
    for (const int rank : {0, 1}) ranks.rank(rank).signal(SIGKILL);
    EXPECT_THAT(ranks.wait(), testing::Each(128 + SIGKILL));
  }
  EXPECT_LT(find_latest_checkpoint(directory_of_killed.path())->step, steps);
  run_to_the_end(to_kill);
  EXPECT_EQ(bits_of(*find_latest_checkpoint(directory_of_killed.path())->directory),
            bits_of(*find_latest_checkpoint(directory.path())->directory));
}

}  // namespace oarlock::test
