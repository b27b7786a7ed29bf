// Whole runs of the trainer program, as real processes: how they train, resume, stop and fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/clock.h"
#include "tests/support/rank_harness.h"
#include "trainer/checkpoint/store.h"
#include "trainer/distributed/socket.h"

namespace oarlock {
namespace {

using test::content;
using test::eventually;
using test::http_get;
using test::TemporaryFolder;
using test::TrainerRanks;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kLong[] =
    "task: tiny\nsteps: 1000000\nbatch: {size: 16}\neval: {every_epochs: 0}\nlog: {every_steps: 10}\n";

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Every tensor of a checkpoint as text: equal text is equal bits.
std::string bits_of(const std::filesystem::path& folder) {
  const auto checkpoint = read_checkpoint(folder);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  std::ostringstream out;
  if (!checkpoint) return "";
  out << "step " << checkpoint->state.step << " epoch " << checkpoint->state.epoch << "+"
      << checkpoint->state.epoch_samples << "\n";
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

// Waits until the job has done so many steps; false: it never did.
bool wait_for_step(TrainerRanks& ranks, int64_t step) {
  const int port = ranks.metrics_port(0);
  return eventually([&] {
    const auto status = rank_status_from_json(http_get(port, kStatusPath));
    return status && status->step >= step;
  });
}

// One run that nobody disturbs; the checkpoint it ends with.
std::string undisturbed(int world_size, const std::string& config, const std::filesystem::path& folder) {
  TrainerRanks ranks(
      world_size,
      {.config = config, .arguments = {"--checkpoint-dir", folder.string()}, .environment = {}, .folder = {}});
  EXPECT_THAT(ranks.wait(), Each(0));
  return bits_of(*find_latest_checkpoint(folder)->folder);
}

TEST(TrainerRun, TrainsAndSaysSo) {
  const TemporaryFolder folder;
  TrainerRanks ranks(2, {.config = "task: tiny\nepochs: 12\nbatch: {size: 16}\noptimizer: {lr: 0.01}\n",
                         .arguments = {"--checkpoint-dir", folder.path().string()},
                         .environment = {},
                         .folder = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(0, 0)) << ranks.rank(0).err();
  const nlohmann::json summary = ranks.log_line(0, "training is complete");
  ASSERT_FALSE(summary.empty()) << ranks.rank(0).err();
  EXPECT_EQ(summary["step"], 12 * 256 / 32);
  EXPECT_GT(summary["accuracy"], 0.6);  // three classes: 0.33 by chance
  EXPECT_EQ(summary["count"], 101);
  EXPECT_EQ(summary["parameters_bitwise_equal"], true);
  EXPECT_GT(summary["samples_per_second"], 0);
  EXPECT_EQ(summary["checkpoint"], find_latest_checkpoint(folder.path())->folder->string());
  for (const int rank : {0, 1}) {
    const TerminationMessage last = ranks.last_word(rank);
    EXPECT_EQ(last.rank, rank);
    EXPECT_EQ(last.reason, "Completed");
    EXPECT_EQ(last.step, 96);
    EXPECT_EQ(last.checkpoint_step, 96);
  }
  EXPECT_EQ(ranks.rank(1).err(), "") << "ranks above 0 only warn";

  TrainerRanks again(2, {.config = "task: tiny\nepochs: 12\nbatch: {size: 16}\noptimizer: {lr: 0.01}\n",
                         .arguments = {"--checkpoint-dir", folder.path().string()},
                         .environment = {},
                         .folder = {}});
  EXPECT_THAT(again.wait(), ElementsAre(0, 0));
  EXPECT_THAT(again.rank(0).err(), HasSubstr("training was complete already"));
}

TEST(TrainerRun, WithoutAnEnvironmentItIsASingleProcess) {
  TrainerRanks ranks(1, {.config = "task: tiny\nsteps: 5\n", .arguments = {}, .environment = {}, .folder = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  EXPECT_EQ(ranks.log_line(0, "training is complete")["world_size"], 1);
}

TEST(TrainerRun, TheSameLossAndEvaluationForEveryWorldSize) {
  // Without dropout, and without batch norm's statistics of each rank's part, nothing depends on how the global batch
  // is cut.
  const std::string config =
      "task: tiny\nsteps: 20\nbatch: {size: 24, per: global}\nmodel: {dropout: 0, batch_norm: false}\n"
      "data: {samples: 240}\nlog: {every_steps: 1}\neval: {batch_size: 16}\noptimizer: {lr: 0.01}\n";
  std::vector<double> alone;
  for (const int world_size : {1, 2, 4}) {
    TrainerRanks ranks(world_size, {.config = config, .arguments = {}, .environment = {}, .folder = {}});
    EXPECT_THAT(ranks.wait(), Each(0));
    std::vector<double> losses;
    for (const std::string& line : test::lines(ranks.rank(0).err())) {
      const nlohmann::json json = nlohmann::json::parse(line);
      if (json["msg"] == "step" || json["msg"] == "training is complete") losses.push_back(json["loss"]);
    }
    ASSERT_EQ(losses.size(), 21U);
    EXPECT_LT(losses[19], 0.9 * losses[0]) << "it learns";
    if (alone.empty()) alone = losses;
    EXPECT_THAT(losses, testing::Pointwise(testing::DoubleNear(2e-6), alone)) << world_size << " ranks";
  }
}

TEST(TrainerRun, ResumedAfterSigkillItEndsWithTheSameBits) {
  for (const int world_size : {1, 2}) {
    const std::string config =
        "task: tiny\nepochs: 30\nbatch: {size: 16}\ncheckpoint: {every_steps: 20, every_epochs: 0}\nseed: 3\n";
    const TemporaryFolder whole;
    const TemporaryFolder parts;
    const std::string expected = undisturbed(world_size, config, whole.path());
    const std::string arguments = parts.path().string();
    {
      TrainerRanks ranks(world_size, {.config = config + "# killed\n",
                                      .arguments = {"--checkpoint-dir", arguments},
                                      .environment = {},
                                      .folder = {}});
      ASSERT_TRUE(eventually([&] { return find_latest_checkpoint(parts.path())->step >= 20; }));
      ranks.rank(world_size - 1).signal(SIGKILL);
      const std::vector<int> codes = ranks.wait();
      EXPECT_EQ(codes.back(), 128 + SIGKILL) << "it must not have been over already";
    }
    const int64_t from = find_latest_checkpoint(parts.path())->step;
    TrainerRanks resumed(world_size, {.config = config,
                                      .arguments = {"--checkpoint-dir", arguments},
                                      .environment = {{"OARLOCK_ATTEMPT", "1"}},
                                      .folder = {}});
    EXPECT_THAT(resumed.wait(), Each(0)) << resumed.rank(0).err();
    EXPECT_EQ(resumed.log_line(0, "resuming from a checkpoint")["resumed_from_step"], from);
    EXPECT_EQ(bits_of(*find_latest_checkpoint(parts.path())->folder), expected);
  }
}

TEST(TrainerRun, SigtermToOneRankSavesAndStopsAll) {
  for (const int world_size : {1, 3}) {
    const TemporaryFolder folder;
    TrainerRanks ranks(world_size, {.config = kLong,
                                    .arguments = {"--checkpoint-dir", folder.path().string(), "--metrics-port", "auto"},
                                    .environment = {},
                                    .folder = {}});
    ASSERT_TRUE(wait_for_step(ranks, 5));
    const double seconds = seconds_of([&] {
      ranks.rank(world_size - 1).signal(SIGTERM);
      EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kTempFail)));
    });
    EXPECT_LT(seconds, 5);
    const int64_t saved = find_latest_checkpoint(folder.path())->step;
    EXPECT_GE(saved, 5);
    for (int rank = 0; rank < world_size; ++rank) {
      const TerminationMessage last = ranks.last_word(rank);
      EXPECT_EQ(last.reason, "Interrupted");
      EXPECT_EQ(last.step, saved);
      EXPECT_EQ(last.checkpoint_step, saved);
    }
  }
}

TEST(TrainerRun, ResumedAfterSigtermItEndsWithTheSameBits) {
  const std::string config =
      "task: tiny\nsteps: 1500\nbatch: {size: 16}\neval: {every_epochs: 0}\ncheckpoint: {every_epochs: 0}\n";
  const TemporaryFolder whole;
  const TemporaryFolder parts;
  const std::string expected = undisturbed(2, config, whole.path());
  const std::vector<std::string> arguments = {"--checkpoint-dir", parts.path().string(), "--metrics-port", "auto"};
  TrainerRanks ranks(2, {.config = config, .arguments = arguments, .environment = {}, .folder = {}});
  ASSERT_TRUE(wait_for_step(ranks, 3));
  ranks.rank(0).signal(SIGTERM);
  ASSERT_THAT(ranks.wait(), ElementsAre(75, 75)) << "it must not have been over already";
  TrainerRanks resumed(2, {.config = config, .arguments = arguments, .environment = {}, .folder = {}});
  EXPECT_THAT(resumed.wait(), ElementsAre(0, 0)) << resumed.rank(0).err();
  EXPECT_EQ(bits_of(*find_latest_checkpoint(parts.path())->folder), expected);
}

TEST(TrainerRun, ResumesWithAnotherWorldSize) {
  const std::string config = "task: tiny\nsteps: 40\nbatch: {size: 16}\ncheckpoint: {every_steps: 3}\n";
  const TemporaryFolder folder;
  undisturbed(2, "task: tiny\nsteps: 21\nbatch: {size: 16}\n", folder.path());
  TrainerRanks ranks(
      3,
      {.config = config, .arguments = {"--checkpoint-dir", folder.path().string()}, .environment = {}, .folder = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  EXPECT_EQ(ranks.log_line(0, "resuming from a checkpoint")["resumed_from_step"], 21);
  EXPECT_EQ(ranks.log_line(0, "training is complete")["step"], 40);
}

TEST(TrainerRun, AKilledRankIsNoticedAtOnce) {
  for (const int victim : {0, 2}) {
    TrainerRanks ranks(3, {.config = kLong, .arguments = {"--metrics-port", "auto"}, .environment = {}, .folder = {}});
    ASSERT_TRUE(wait_for_step(ranks, 5));
    const double seconds = seconds_of([&] {
      ranks.rank(victim).signal(SIGKILL);
      const std::vector<int> codes = ranks.wait();
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(codes[static_cast<size_t>(rank)], rank == victim ? 128 + SIGKILL : to_int(ExitCode::kPeerLost))
            << rank;
      }
    });
    EXPECT_LT(seconds, 2);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks.last_word(rank).reason, "PeerLost");
      EXPECT_GE(ranks.last_word(rank).step, 5);
      EXPECT_THAT(ranks.rank(rank).err(), HasSubstr("another rank was lost"));
    }
  }
}

TEST(TrainerRun, AMasterThatIsLostBeforeAllHaveMetReleasesTheOthers) {
  TrainerRanks ranks(2, {.config = kLong,
                         .arguments = {},
                         .environment = {{"WORLD_SIZE", "3"}, {"LOCAL_WORLD_SIZE", "3"}},
                         .folder = {}});
  ASSERT_TRUE(eventually([&] {
    return ranks.log_line(0, "rendezvous: waiting for ranks").value("missing", "") == "2";
  })) << ranks.rank(0).err();
  const double seconds = seconds_of([&] {
    ranks.rank(0).signal(SIGKILL);
    EXPECT_THAT(ranks.wait(), ElementsAre(128 + SIGKILL, to_int(ExitCode::kPeerLost)));
  });
  EXPECT_LT(seconds, 2);
  EXPECT_THAT(ranks.last_word(1).message, HasSubstr("rank 0 at 127.0.0.1:"));
}

TEST(TrainerRun, AHangingRankEndsTheOthersAtTheTimeOut) {
  const std::string config = std::string(kLong) + "distributed: {timeout_seconds: 1}\n";
  TrainerRanks ranks(2, {.config = config, .arguments = {"--metrics-port", "auto"}, .environment = {}, .folder = {}});
  ASSERT_TRUE(wait_for_step(ranks, 5));
  const double seconds = seconds_of([&] {
    ranks.rank(1).signal(SIGSTOP);
    EXPECT_EQ(ranks.rank(0).wait(), to_int(ExitCode::kPeerLost));
  });
  EXPECT_LT(seconds, 3);
  EXPECT_THAT(ranks.last_word(0).message, AllOf(HasSubstr("timed out"), HasSubstr("distributed.timeout_seconds")));
}

TEST(TrainerRun, ARanksOwnFailureKeepsItsCode) {
  TrainerRanks ranks(2, {.config = std::string(kLong) + "model: {fault: {kind: throw, rank: 1, step: 6}}\n",
                         .arguments = {},
                         .environment = {},
                         .folder = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(to_int(ExitCode::kPeerLost), to_int(ExitCode::kSoftware)));
  EXPECT_THAT(ranks.last_word(1).message, HasSubstr("the fault 'throw'"));
  EXPECT_EQ(ranks.last_word(1).step, 6);
}

TEST(TrainerRun, MissingDataFailsItsRankAndReleasesTheOthers) {
  TrainerRanks ranks(2, {.config = std::string(kLong) + "model: {fault: {kind: prepare, rank: 0}}\n",
                         .arguments = {},
                         .environment = {},
                         .folder = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(to_int(ExitCode::kNoInput), to_int(ExitCode::kPeerLost)));
}

TEST(TrainerRun, AModelThatDiffersStopsAllWithItsName) {
  TrainerRanks ranks(2, {.config = std::string(kLong) + "model: {fault: {kind: shape, rank: 1}}\n",
                         .arguments = {},
                         .environment = {},
                         .folder = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(78, 78));
  EXPECT_THAT(ranks.last_word(1).message, HasSubstr("'fc1.weight'"));
}

TEST(TrainerRun, ALossThatIsNotFiniteStopsAllAndIsNeverSaved) {
  const TemporaryFolder folder;
  const std::string config =
      "task: tiny\nsteps: 1000\nbatch: {size: 16}\nlog: {every_steps: 1000}\ncheckpoint: {every_steps: 5, "
      "every_epochs: 0}\n"
      "eval: {every_epochs: 0}\nmodel: {fault: {kind: nan, rank: 1, step: 12}}\n";
  TrainerRanks ranks(
      2,
      {.config = config, .arguments = {"--checkpoint-dir", folder.path().string()}, .environment = {}, .folder = {}});
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kDataErr)));
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.last_word(rank).reason, "NonFiniteLoss");
  EXPECT_THAT(ranks.last_word(0).message, AllOf(HasSubstr("nan"), HasSubstr("optimizer.lr")));
  EXPECT_EQ(find_latest_checkpoint(folder.path())->step, 10);
}

TEST(TrainerRun, TheCheckpointFolderCannotBeWritten) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "not a folder";
  TrainerRanks ranks(2, {.config = kLong,
                         .arguments = {"--checkpoint-dir", (folder.path() / "file" / "ck").string()},
                         .environment = {},
                         .folder = {}});
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kCantCreate)));
  EXPECT_THAT(ranks.last_word(0).message, HasSubstr((folder.path() / "file").string()));
}

TEST(TrainerRun, ANewerAttemptFencesAnOlderOneOff) {
  const TemporaryFolder folder;
  const auto with_attempt = [&](const char* attempt) {
    return test::TrainerOptions{.config = kLong,
                                .arguments = {"--checkpoint-dir", folder.path().string(), "--metrics-port", "auto"},
                                .environment = {{"OARLOCK_UID", "u"}, {"OARLOCK_ATTEMPT", attempt}},
                                .folder = {}};
  };
  TrainerRanks zombie(1, with_attempt("0"));
  ASSERT_TRUE(wait_for_step(zombie, 1));
  TrainerRanks newer(1, with_attempt("1"));
  ASSERT_TRUE(wait_for_step(newer, 1));
  zombie.rank(0).signal(SIGTERM);  // it would save now
  EXPECT_EQ(zombie.rank(0).wait(), to_int(ExitCode::kTempFail));
  newer.rank(0).signal(SIGTERM);
  EXPECT_EQ(newer.rank(0).wait(), to_int(ExitCode::kTempFail));
  EXPECT_EQ(newer.last_word(0).checkpoint_step, find_latest_checkpoint(folder.path())->step);
  EXPECT_EQ(zombie.last_word(0).reason, "Replaced");
}

TEST(TrainerRun, TheCheckpointOfAnotherSeedIsRefused) {
  const TemporaryFolder folder;
  undisturbed(1, "task: tiny\nsteps: 2\nseed: 1\n", folder.path());
  TrainerRanks ranks(2, {.config = "task: tiny\nsteps: 4\nseed: 2\n",
                         .arguments = {"--checkpoint-dir", folder.path().string()},
                         .environment = {},
                         .folder = {}});
  EXPECT_THAT(ranks.wait(), Each(78));
  EXPECT_THAT(ranks.last_word(1).message, AllOf(HasSubstr("seed 1"), HasSubstr("says 2")));
}

TEST(TrainerRun, ACorruptCheckpointIsSkippedForTheNewestThatIsWhole) {
  const TemporaryFolder folder;
  const std::string config = "task: tiny\nsteps: 12\nbatch: {size: 16}\ncheckpoint: {every_steps: 4, keep: 0}\n";
  const std::string expected = undisturbed(2, config, folder.path());
  const std::filesystem::path newest = *find_latest_checkpoint(folder.path())->folder;
  std::filesystem::resize_file(newest / "model.safetensors", 100);
  TrainerRanks ranks(
      2,
      {.config = config, .arguments = {"--checkpoint-dir", folder.path().string()}, .environment = {}, .folder = {}});
  EXPECT_THAT(ranks.wait(), Each(0));
  EXPECT_EQ(ranks.log_line(0, "resuming from a checkpoint")["resumed_from_step"], 8);
  EXPECT_EQ(ranks.log_line(0, "a checkpoint is not valid and was skipped")["folder"], newest.string());
  EXPECT_EQ(bits_of(*find_latest_checkpoint(folder.path())->folder), expected);
}

// ---- metrics and status ----------------------------------------------------------------------------------------

double value_of(const std::string& exposition, const std::string& series) {
  std::istringstream lines(exposition);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(series + " ")) return std::stod(line.substr(series.size() + 1));
  }
  ADD_FAILURE() << series << " is not in\n" << exposition;
  return -1;
}

TEST(TrainerRun, MetricsAndStatusWhileItRuns) {
  const TemporaryFolder folder;
  TrainerRanks ranks(2, {.config = std::string(kLong) + "checkpoint: {every_steps: 20}\n",
                         .arguments = {"--checkpoint-dir", folder.path().string(), "--metrics-port", "auto"},
                         .environment = {{"OARLOCK_ATTEMPT", "2"}, {"OARLOCK_UID", "uid-9"}},
                         .folder = {}});
  ASSERT_TRUE(wait_for_step(ranks, 40));
  const int port = ranks.metrics_port(0);
  const auto status = rank_status_from_json(http_get(port, kStatusPath));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->rank, 0);
  EXPECT_EQ(status->world_size, 2);
  EXPECT_EQ(status->attempt, 2);
  EXPECT_THAT(status->phase, testing::AnyOf("train", "checkpoint"));
  EXPECT_EQ(status->target_steps, 1000000);
  EXPECT_GE(status->checkpoint_step, 20);
  EXPECT_LE(status->checkpoint_step, status->step);
  EXPECT_TRUE(status->loss);
  EXPECT_GT(status->samples_per_second, 0);
  EXPECT_GT(status->collective_sequence, 40);
  SystemTime updated;
  ASSERT_TRUE(from_rfc3339(status->updated_at, updated));
  EXPECT_LT(std::chrono::system_clock::now() - updated, std::chrono::seconds(5));

  const std::string metrics = http_get(port, kMetricsPath);
  EXPECT_EQ(value_of(metrics, "trainer_world_size{rank=\"0\"}"), 2);
  const double steps = value_of(metrics, "trainer_steps_total{rank=\"0\"}");
  EXPECT_GE(steps, 40);
  EXPECT_EQ(value_of(metrics, "trainer_samples_total{rank=\"0\"}"), steps * 16);
  EXPECT_EQ(value_of(metrics, "trainer_step_duration_seconds_count{rank=\"0\"}"), steps);
  EXPECT_GE(value_of(metrics, "trainer_collective_bytes_total{rank=\"0\",group=\"dp\",op=\"all_reduce\"}"), steps * 4);
  EXPECT_GE(value_of(metrics, "trainer_checkpoint_operations_total{rank=\"0\",operation=\"save\",result=\"success\"}"),
            1);
  EXPECT_EQ(value_of(metrics, "trainer_rendezvous_duration_seconds_count{rank=\"0\"}"), 1);
  EXPECT_GT(value_of(metrics, "process_resident_memory_bytes"), 0);
  EXPECT_THAT(metrics, HasSubstr("run_id=\"uid-9\""));
  EXPECT_EQ(http_get(port, "/healthz"), "ok\n");

  // The exposition is read by Prometheus' own parser where there is one, and by the rules of the format everywhere.
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("# HELP ") || line.starts_with("# TYPE ") || line.find(' ') != std::string::npos)
        << line;
  }
  // The phases sum up to the uptime: two scrapes some time apart.
  const auto sum_of_phases = [](const std::string& text) {
    double sum = 0;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      if (line.starts_with("trainer_phase_seconds_total{")) sum += std::stod(line.substr(line.find("} ") + 2));
    }
    return sum;
  };
  const auto begin = std::chrono::steady_clock::now();
  const double before = sum_of_phases(metrics);
  ASSERT_TRUE(wait_for_step(ranks, static_cast<int64_t>(steps) + 300));
  const double after = sum_of_phases(http_get(port, kMetricsPath));
  EXPECT_NEAR(after - before, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 0.25);

  ranks.rank(0).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), Each(75));
}

TEST(TrainerRun, EachLocalRankServesItsOwnPort) {
  const int base = test::free_port();
  TrainerRanks ranks(2, {.config = kLong,
                         .arguments = {},
                         .environment = {{"OARLOCK_METRICS_PORT", std::to_string(base)}},
                         .folder = {}});
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(eventually([&] {
      const auto status = rank_status_from_json(http_get(base + rank, kStatusPath));
      return status && status->rank == rank;
    })) << ranks.rank(rank).err();
  }
  ranks.rank(1).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), Each(75));
}

TEST(TrainerRun, StatusIsServedBeforeTheRanksHaveMet) {
  TrainerRanks ranks(1, {.config = kLong,
                         .arguments = {"--metrics-port", "auto"},
                         .environment = {{"RANK", "0"},
                                         {"WORLD_SIZE", "2"},
                                         {"MASTER_ADDR", "127.0.0.1"},
                                         {"MASTER_PORT", std::to_string(test::free_port())}},
                         .folder = {}});
  const auto status = rank_status_from_json(http_get(ranks.metrics_port(0), kStatusPath));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->phase, "rendezvous");
  ranks.rank(0).signal(SIGTERM);
  EXPECT_EQ(ranks.rank(0).wait(), 75);
  EXPECT_EQ(ranks.last_word(0).reason, "Interrupted");
}

// ---- bad input -------------------------------------------------------------------------------------------------

struct Bad {
  const char* name;
  std::string config;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;
  ExitCode code;
  std::vector<std::string> words;
};

class BadInput : public testing::TestWithParam<Bad> {};

TEST_P(BadInput, OneLineTheCodeAndTheTerminationMessage) {
  const Bad& bad = GetParam();
  TrainerRanks ranks(1,
                     {.config = bad.config, .arguments = bad.arguments, .environment = bad.environment, .folder = {}});
  const double seconds = seconds_of([&] { EXPECT_THAT(ranks.wait(), ElementsAre(to_int(bad.code))); });
  EXPECT_LT(seconds, 5);
  const std::string err = ranks.rank(0).err();
  for (const std::string& word : bad.words) {
    EXPECT_THAT(err, HasSubstr(word));
    EXPECT_THAT(ranks.last_word(0).message, HasSubstr(word));
  }
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadInput,
    testing::Values(Bad{"unknown_key",
                        "task: tiny\nsteps: 1\nepohcs: 2\n",
                        {},
                        {},
                        ExitCode::kConfig,
                        {"trainer.yaml:3:1", "epohcs", "epochs"}},
                    Bad{"no_master_addr",
                        kLong,
                        {},
                        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}},
                        ExitCode::kConfig,
                        {"MASTER_ADDR"}},
                    Bad{"rank_too_large",
                        kLong,
                        {},
                        {{"RANK", "2"}, {"WORLD_SIZE", "2"}},
                        ExitCode::kConfig,
                        {"RANK=2", "WORLD_SIZE=2"}},
                    Bad{"uneven_global_batch",
                        "task: tiny\nsteps: 1\nbatch: {size: 3, per: global}\n",
                        {},
                        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}},
                        ExitCode::kConfig,
                        {"global batch of 3", "2 ranks"}},
                    Bad{"no_full_batch",
                        "task: tiny\nsteps: 1\nbatch: {size: 1000, drop_last: true}\n",
                        {},
                        {},
                        ExitCode::kConfig,
                        {"drop_last"}},
                    Bad{"cuda_is_not_there",
                        "task: tiny\nsteps: 1\ndevice: cuda\n",
                        {},
                        {},
                        ExitCode::kUnavailable,
                        {"device: cuda"}},
                    Bad{"master_never_comes",
                        "task: tiny\nsteps: 1\ndistributed: {rendezvous_timeout_seconds: 0.3}\n",
                        {},
                        {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}},
                        ExitCode::kTempFail,
                        {"127.0.0.1:1", "Connection refused"}}),
    [](const auto& test_case) { return std::string(test_case.param.name); });

TEST(TrainerRun, TheMetricsPortIsInUse) {
  const auto listener = listen_on(0);
  ASSERT_TRUE(listener);
  TrainerRanks ranks(1, {.config = kLong,
                         .arguments = {"--metrics-port", std::to_string(listener->port)},
                         .environment = {},
                         .folder = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(to_int(ExitCode::kUnavailable)));
  EXPECT_THAT(ranks.last_word(0).message, HasSubstr(std::to_string(listener->port)));
  ::close(listener->descriptor);
}

TEST(TrainerRun, TheRendezvousPortIsInUse) {
  const auto listener = listen_on(0);
  ASSERT_TRUE(listener);
  TrainerRanks ranks(1, {.config = kLong,
                         .arguments = {},
                         .environment = {{"RANK", "0"},
                                         {"WORLD_SIZE", "2"},
                                         {"MASTER_ADDR", "127.0.0.1"},
                                         {"MASTER_PORT", std::to_string(listener->port)}},
                         .folder = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(to_int(ExitCode::kUnavailable)));
  EXPECT_THAT(ranks.last_word(0).message, AllOf(HasSubstr(std::to_string(listener->port)), HasSubstr("MASTER_PORT")));
  ::close(listener->descriptor);
}

TEST(CommandLine, HelpVersionCheckAndUsage) {
  const TemporaryFolder folder;
  const std::string good = folder.path() / "good.yaml";
  const std::string bad = folder.path() / "bad.yaml";
  std::ofstream(good) << "task: tiny\nsteps: 1\n";
  std::ofstream(bad) << "task: tiny\nsteps: 1\nmodel: {hiden: 3}\n";
  const auto run = [](const std::vector<std::string>& arguments, int code) {
    std::vector<std::string> argv = {test::test_trainer()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    test::Program program(argv);
    EXPECT_EQ(program.wait(), code);
    return program.out() + program.err();
  };
  EXPECT_THAT(run({"--help"}, 0), AllOf(HasSubstr("--config"), HasSubstr("examples:"), HasSubstr("exit codes:")));
  EXPECT_THAT(run({"--version"}, 0), HasSubstr("oarlock-trainer "));
  EXPECT_THAT(run({"--config", good, "--check"}, 0), HasSubstr("is valid"));
  EXPECT_THAT(run({"--config", bad, "--check"}, 78),
              HasSubstr("bad.yaml:3:9: model.hiden: unknown key; did you mean 'hidden'?"));
  EXPECT_THAT(run({"--config", "/nowhere.yaml", "--check"}, 66), HasSubstr("/nowhere.yaml"));
  EXPECT_THAT(run({}, 64), HasSubstr("OARLOCK_CONFIG"));
  EXPECT_THAT(run({"--confg", good}, 64), HasSubstr("--confg"));
  EXPECT_THAT(run({"--config", good, "--metrics-port", "many"}, 64), HasSubstr("--metrics-port"));
}

}  // namespace
}  // namespace oarlock
