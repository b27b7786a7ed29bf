// Recovery without a checkpoint: a rank is killed, the others keep their state, and the run with its replacement ends
// with the bits of an undisturbed one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "common/files.h"
#include "tests/integration/trainer/run_support.h"
#include "tests/support/blocked_file.h"
#include "tests/support/trainer_program/file_channel.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/tracking/event_file.h"
#include "trainer/tracking/run_files.h"
#include "trainer/tracking/wandb_file.h"

namespace oarlock {
namespace {

using test::bits_of;
using test::lines;
using test::Program;
using test::ProgramOptions;
using test::TemporaryDirectory;

namespace fs = std::filesystem;

constexpr auto kLimit = std::chrono::seconds(120);  // of one run

// Dropout, BatchNorm, AdamW, moving average, two micro-batches per step, clipping, a schedule with state, evaluations
// that choose the best checkpoint, and saves: everything that has state.
constexpr char kConfig[] =
    "task: tiny\nsteps: 60\nbatch: {size: 16}\ndata: {samples: 208, eval_samples: 33}\n"
    "optimizer: {name: adamw, lr: 0.003}\nema: {enabled: true, decay: 0.9}\n"
    "gradient: {accumulation_steps: 2, clip_norm: 1.0}\n"
    "schedule: {name: plateau, plateau: {patience: 1}}\n"
    "eval: {every_steps: 7}\ncheckpoint: {every_steps: 10, keep: 0}\nlog: {every_steps: 5}\nseed: 3\nthreads: 1\n";

// Starts the ranks, replaces those that are killed, and answers their requests, as a launcher does.
class Job {
 public:
  // With `ranks_per_node`, the ranks have the environment of several nodes; 0: of one node.
  Job(int world_size, const std::string& config, const std::string& overrides = "", bool with_channel = true,
      int ranks_per_node = 0, const fs::path& checkpoints = {})
      : world_size_(world_size),
        ranks_per_node_(ranks_per_node > 0 ? ranks_per_node : world_size),
        with_channel_(with_channel),
        pending_(static_cast<size_t>(world_size)) {
    checkpoints_ = checkpoints.empty() ? directory_.path() / "checkpoints" : checkpoints;
    std::ofstream(directory_.path() / "trainer.yaml") << config << overrides;
    fs::create_directory(channel());
    for (int rank = 0; rank < world_size; ++rank) ranks_.push_back(start(rank));
  }

  fs::path checkpoints() const { return checkpoints_; }
  fs::path once() const { return directory_.path() / "once"; }
  // From now on, these ranks are not replaced when they are killed: the others continue without them.
  void do_not_replace(const std::set<int>& ranks) { not_replaced_ = ranks; }
  // Forms no further group after this many, so that the ranks wait for it.
  void limit_groups(int64_t groups) { group_limit_ = groups; }
  // Starts a rank that was not replaced.
  void bring_back(int rank) {
    absent_.erase(rank);
    not_replaced_.erase(rank);
    ranks_[static_cast<size_t>(rank)] = start(rank);
  }
  // Replaces a rank that remains alive, as on a node that is cut off.
  std::unique_ptr<Program> cut_off(int rank) {
    pending_[static_cast<size_t>(rank)].reset();
    if (generation_ >= 0) std::ofstream(channel() / fmt::format("left-{}", generation_));
    return std::exchange(ranks_[static_cast<size_t>(rank)], start(rank));
  }
  bool is_absent(int rank) const { return absent_.contains(rank); }
  bool is_waiting(int rank) const { return pending_[static_cast<size_t>(rank)].has_value(); }
  int recoveries() const { return static_cast<int>(generation_); }
  int starts() const { return starts_; }
  Program& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  std::vector<double> outages() const { return outages_; }

  // Returns whether all ranks succeeded. Calls `disturb` about every five milliseconds.
  bool run(const std::function<void(Job&)>& disturb = {}) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    for (;;) {
      if (disturb) disturb(*this);
      replace_killed();
      answer();
      if (!is_any_alive()) {
        replace_killed();  // those that have ended since the last call
        if (!is_any_alive()) break;
      }
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "the run has not ended\n" << all_logs();
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    bool succeeded = true;
    for (int rank = 0; rank < world_size_; ++rank)
      succeeded = (absent_.contains(rank) || ranks_[static_cast<size_t>(rank)]->wait() == 0) && succeeded;
    return succeeded;
  }

  // Returns whether a checkpoint is being written, or the second one is complete already.
  bool is_saving() const {
    int saved = 0;
    std::error_code ignored;
    for (fs::directory_iterator entry(checkpoints(), ignored), end; !ignored && entry != end;
         entry.increment(ignored)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with(".writing-")) return true;
      if (name.starts_with("step-")) ++saved;
    }
    return saved >= 2;
  }

  // Returns whether all ranks but this one have left the group.
  bool others_have_left(int rank) const {
    for (int other = 0; other < world_size_; ++other)
      if (other != rank && !pending_[static_cast<size_t>(other)]) return false;
    return true;
  }

  std::string bits() const { return bits_of(checkpoints() / "last"); }

  std::string all_logs() const {
    std::string out;
    for (const std::string& text : old_logs_) out += text + "--- replaced ---\n";
    for (int rank = 0; rank < world_size_; ++rank)
      out += fmt::format("--- rank {} ---\n{}", rank, ranks_[static_cast<size_t>(rank)]->err());
    return out;
  }

  // The log lines of all recoveries.
  std::vector<nlohmann::json> recovery_lines() const {
    return lines_of("recovered from the loss of a rank without a checkpoint");
  }
  std::vector<nlohmann::json> lines_of(const std::string& message) const {
    std::vector<nlohmann::json> out;
    for (const std::string& line : lines(all_logs())) {
      const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_object() && json.value("msg", "") == message) out.push_back(json);
    }
    return out;
  }

 private:
  struct Request {
    std::string id;
    int64_t generation = -1;
    int64_t step = -1;
    std::string digest;
  };

  bool is_any_alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return test::alive(rank->pid()); });
  }
  fs::path channel() const { return directory_.path() / "channel"; }

  std::unique_ptr<Program> start(int rank) {
    ++starts_;
    ProgramOptions options;
    options.environment = {{kEnvRank, std::to_string(rank)},
                           {kEnvLocalRank, std::to_string(rank % ranks_per_node_)},
                           {kEnvWorldSize, std::to_string(world_size_)},
                           {kEnvLocalWorldSize, std::to_string(ranks_per_node_)},
                           {kEnvMasterAddr, "127.0.0.1"},
                           {kEnvMasterPort, std::to_string(port_.first())},
                           {"OARLOCK_UID", "job"},
                           {kEnvTerminationLog, (directory_.path() / fmt::format("termination-{}", rank)).string()}};
    if (with_channel_) options.environment[test::kEnvRegroupDirectory] = channel().string();
    return std::make_unique<Program>(
        std::vector<std::string>{test::test_trainer(), "--config", (directory_.path() / "trainer.yaml").string(),
                                 "--checkpoint-dir", checkpoints().string(), "--metrics-port", "auto",
                                 fmt::format("model.fault.once={}", once().string())},
        options);
  }

  void replace_killed() {
    for (int rank = 0; rank < world_size_; ++rank) {
      auto& program = ranks_[static_cast<size_t>(rank)];
      if (test::alive(program->pid()) || done_.contains(rank) || absent_.contains(rank)) continue;
      const int code = program->wait();
      if (code != 128 + SIGKILL && code != to_int(ExitCode::kPeerLost)) {
        done_.insert(rank);
        continue;
      }
      if (!lost_since_) lost_since_ = std::chrono::steady_clock::now();
      old_logs_.push_back(program->err());
      pending_[static_cast<size_t>(rank)].reset();
      if (generation_ >= 0) std::ofstream(channel() / fmt::format("left-{}", generation_));
      if (not_replaced_.contains(rank)) {
        absent_.insert(rank);
      } else {
        program = start(rank);
      }
    }
  }

  void answer() {
    for (const auto& entry : fs::directory_iterator(channel())) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("request-") || name.find(".tmp") != std::string::npos || !seen_.insert(name).second)
        continue;
      const nlohmann::json json = nlohmann::json::parse(test::content(entry.path()));
      const int rank = json.at("rank");
      const std::string id = name.substr(std::string("request-").size());
      const std::string pid = std::to_string(ranks_[static_cast<size_t>(rank)]->pid());
      if (id.find("-" + pid + "-") == std::string::npos) continue;  // of a process that was killed
      pending_[static_cast<size_t>(rank)] = Request{id, json.at("generation"), json.at("step"), json.at("digest")};
      if (json.at("generation") >= 0)
        std::ofstream(channel() / fmt::format("left-{}", json.at("generation").get<int64_t>()));
    }
    if (generation_ + 1 >= group_limit_) return;
    std::vector<int> members;  // in the order of their ranks in the group
    for (int rank = 0; rank < world_size_; ++rank) {
      if (absent_.contains(rank)) continue;
      if (!pending_[static_cast<size_t>(rank)]) {
        // A rank that waits for the others joins their group.
        const bool waits = std::any_of(pending_.begin(), pending_.end(),
                                       [](const auto& request) { return request && request->generation < 0; });
        if (waits && generation_ >= 0) std::ofstream(channel() / fmt::format("growing-{}", generation_));
        return;
      }
      members.push_back(rank);
    }
    ++generation_;
    int donor = -1;
    int64_t step = -1;
    for (size_t i = 0; i < members.size(); ++i) {
      const Request& request = *pending_[static_cast<size_t>(members[i])];
      if (request.step <= step) continue;
      donor = static_cast<int>(i);
      step = request.step;
    }
    for (const int rank : members) {
      const Request& request = *pending_[static_cast<size_t>(rank)];
      if (step < 0 || request.step != step) continue;
      EXPECT_EQ(request.digest, pending_[static_cast<size_t>(members[static_cast<size_t>(donor)])]->digest)
          << "at step " << step;
    }
    store_ports_.push_back(test::reserve_ports());
    for (size_t i = 0; i < members.size(); ++i) {
      const auto rank = static_cast<size_t>(members[i]);
      const nlohmann::json json = {{"generation", generation_},
                                   {"rank", i},
                                   {"world_size", members.size()},
                                   {"donor", donor},
                                   {"step", step},
                                   {"port", store_ports_.back().first()}};
      EXPECT_TRUE(write_file_atomically(channel() / ("answer-" + pending_[rank]->id), json.dump()));
      pending_[rank].reset();
    }
    if (lost_since_)
      outages_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - *lost_since_).count());
    lost_since_.reset();
  }

  TemporaryDirectory directory_;
  fs::path checkpoints_;
  PortReservation port_ = test::reserve_ports();
  std::vector<PortReservation> store_ports_;
  int world_size_;
  int ranks_per_node_;
  bool with_channel_;
  int starts_ = 0;
  int64_t generation_ = -1;
  int64_t group_limit_ = std::numeric_limits<int64_t>::max();
  std::vector<std::unique_ptr<Program>> ranks_;
  std::vector<std::optional<Request>> pending_;  // by rank
  std::set<std::string> seen_;
  std::set<int> done_;
  std::set<int> not_replaced_;
  std::set<int> absent_;
  std::vector<std::string> old_logs_;
  std::optional<std::chrono::steady_clock::time_point> lost_since_;
  std::vector<double> outages_;
};

const std::string& undisturbed(int world_size, const std::string& config = kConfig) {
  static std::map<std::pair<int, std::string>, std::string> bits;
  std::string& out = bits[{world_size, config}];
  if (out.empty()) {
    Job job(world_size, config, "", /*with_channel=*/false);
    EXPECT_TRUE(job.run()) << job.all_logs();
    out = job.bits();
  }
  return out;
}

void print_times(const Job& job) {
  for (const nlohmann::json& line : job.recovery_lines())
    std::printf("step %ld: ranks %s replaced, %.3f s\n", line["step"].get<long>(),
                line["ranks"].get<std::string>().c_str(), line["seconds"].get<double>());
}

TEST(Recovery, AChannelChangesNoBit) {
  for (const int world_size : {2, 4}) {
    Job job(world_size, kConfig);
    EXPECT_TRUE(job.run()) << job.all_logs();
    EXPECT_EQ(job.bits(), undisturbed(world_size));
    EXPECT_EQ(job.recoveries(), 0);
  }
}

struct Kill {
  std::string kind;
  int world_size = 2;
  int rank = 0;
  int step = 0;
  std::string more = "";

  // The settings of a job with this fault, in addition to kConfig.
  std::string settings() const {
    return fmt::format("{}model: {{fault: {{kind: {}, rank: {}, step: {}}}}}\n", more, kind, rank, step);
  }
};

class KilledRank : public testing::TestWithParam<Kill> {};

TEST_P(KilledRank, ChangesNoBitAndLosesNoStep) {
  const Kill& kill = GetParam();
  Job job(kill.world_size, kConfig, kill.settings());
  ASSERT_TRUE(job.run()) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(job.starts(), kill.world_size + 1);
  EXPECT_EQ(job.bits(), undisturbed(kill.world_size, kConfig + kill.more));
  const std::vector<nlohmann::json> recovered = job.recovery_lines();
  ASSERT_EQ(recovered.size(), 1U) << job.all_logs();
  EXPECT_EQ(recovered[0]["ranks"], std::to_string(kill.rank));
  EXPECT_EQ(recovered[0]["steps_lost"], 0);
  EXPECT_GE(recovered[0]["step"], kill.step);
  EXPECT_LE(recovered[0]["step"], kill.step + 7) << "the evaluation after the step is the latest point of these kills";
  if (kill.kind == "kill_update") {  // after the last collective of the step, which others may have completed, or not
    EXPECT_LE(recovered[0]["step"], kill.step + 1);
    EXPECT_EQ(test::content(job.once()), "in the update");
  }
  print_times(job);
}

constexpr char kOverGloo[] = "ddp: {shared_memory: false}\n";

INSTANTIATE_TEST_SUITE_P(
    EachPhase, KilledRank,
    testing::Values(Kill{.kind = "kill_forward", .world_size = 2, .rank = 0, .step = 0},
                    Kill{.kind = "kill_forward", .world_size = 2, .rank = 1, .step = 23},
                    Kill{.kind = "kill_forward", .world_size = 4, .rank = 0, .step = 13, .more = kOverGloo},
                    Kill{.kind = "kill_backward", .world_size = 2, .rank = 0, .step = 17},
                    Kill{.kind = "kill_backward", .world_size = 4, .rank = 2, .step = 1, .more = kOverGloo},
                    Kill{.kind = "kill_backward", .world_size = 4, .rank = 3, .step = 31},
                    Kill{.kind = "kill_update", .world_size = 2, .rank = 0, .step = 9},
                    Kill{.kind = "kill_update", .world_size = 2, .rank = 1, .step = 26},
                    Kill{.kind = "kill_update", .world_size = 4, .rank = 0, .step = 33, .more = kOverGloo},
                    Kill{.kind = "kill_update", .world_size = 4, .rank = 1, .step = 0},
                    Kill{.kind = "kill_update", .world_size = 4, .rank = 3, .step = 41, .more = kOverGloo},
                    Kill{.kind = "kill_eval", .world_size = 2, .rank = 1, .step = 20},
                    Kill{.kind = "kill_eval", .world_size = 4, .rank = 0, .step = 27}),
    [](const testing::TestParamInfo<Kill>& test_case) {
      const Kill& kill = test_case.param;
      return fmt::format("{}_of_rank_{}_of_{}_in_step_{}{}", kill.kind, kill.rank, kill.world_size, kill.step,
                         kill.more.empty() ? "" : "_over_gloo");
    });

// ---- a signal in a recovery -----------------------------------------------------------------------------------------

class StoppedRecovery : public testing::TestWithParam<Kill> {};

// Every rank receives a signal while it waits for the next group. Rank 0 saves its state alone, and a run that resumes
// from it ends with the bits of an undisturbed one.
TEST_P(StoppedRecovery, LosesNoStep) {
  const Kill& kill = GetParam();
  Job job(kill.world_size, kConfig, kill.settings());
  job.limit_groups(1);
  job.do_not_replace({1, 2, 3});
  job.run([&](Job& running) {
    if (!running.is_absent(kill.rank) || !running.is_waiting(0)) return;
    for (int rank = 0; rank < kill.world_size; ++rank) {
      if (!running.is_absent(rank)) running.rank(rank).signal(SIGTERM);
    }
  });
  EXPECT_EQ(job.rank(0).wait(), to_int(ExitCode::kTempFail)) << job.all_logs();
  for (int rank = 1; rank < kill.world_size; ++rank)
    EXPECT_EQ(job.rank(rank).wait(), rank == kill.rank ? 128 + SIGKILL : to_int(ExitCode::kPeerLost)) << job.all_logs();
  const int64_t saved = find_latest_checkpoint(job.checkpoints())->step;
  EXPECT_GE(saved, kill.step) << job.all_logs();
  EXPECT_THAT(job.all_logs(), testing::HasSubstr(fmt::format("interrupted by a signal at step {}; saved", saved)));
  Job resumed(kill.world_size, kConfig, kill.more, /*with_channel=*/false, 0, job.checkpoints());
  ASSERT_TRUE(resumed.run()) << resumed.all_logs();
  EXPECT_EQ(resumed.bits(), undisturbed(kill.world_size, kConfig + kill.more));
}

// With three ranks, the bits depend on the buckets, which the checkpoint must contain.
constexpr char kManyBuckets[] = "ddp: {shared_memory: false, bucket_cap_mb: 0.001}\n";

INSTANTIATE_TEST_SUITE_P(
    EachPhase, StoppedRecovery,
    testing::Values(Kill{.kind = "kill_forward", .world_size = 2, .rank = 1, .step = 23},
                    Kill{.kind = "kill_backward", .world_size = 3, .rank = 2, .step = 2, .more = kManyBuckets},
                    Kill{.kind = "kill_update", .world_size = 2, .rank = 1, .step = 26},
                    Kill{.kind = "kill_update", .world_size = 3, .rank = 1, .step = 33, .more = kManyBuckets},
                    Kill{.kind = "kill_eval", .world_size = 2, .rank = 1, .step = 20}),
    [](const testing::TestParamInfo<Kill>& test_case) {
      const Kill& kill = test_case.param;
      return fmt::format("{}_of_rank_{}_of_{}_in_step_{}", kill.kind, kill.rank, kill.world_size, kill.step);
    });

// The signal arrives first, and the ranks cannot agree on it, because one of them does not respond.
TEST(Recovery, SignalBeforeALossLosesNoStep) {
  Job job(2, kConfig);
  job.limit_groups(1);
  job.do_not_replace({1});
  bool is_stopped = false;
  job.run([&](Job& running) {
    if (is_stopped || !running.is_saving()) return;
    is_stopped = true;
    running.rank(1).signal(SIGSTOP);
    running.rank(0).signal(SIGTERM);
    running.rank(1).signal(SIGKILL);
  });
  EXPECT_EQ(job.rank(0).wait(), to_int(ExitCode::kTempFail)) << job.all_logs();
  Job resumed(2, kConfig, "", /*with_channel=*/false, 0, job.checkpoints());
  ASSERT_TRUE(resumed.run()) << resumed.all_logs();
  EXPECT_EQ(resumed.bits(), undisturbed(2));
}

// Rank 0 does not save what the others would have to complete: the buckets after the first step, and weights that are
// not finite.
TEST(Recovery, SignalSavesOnlyACompleteState) {
  const std::string config =
      "task: tiny\nsteps: 100000\nbatch: {size: 16}\ndata: {samples: 208}\nthreads: 1\nlog: {every_steps: 50000}\n"
      "eval: {every_epochs: 0}\ncheckpoint: {every_epochs: 0, best: {save: false}}\n";
  for (const bool is_first : {true, false}) {
    Job job(2, config,
            is_first ? "model: {fault: {kind: kill_update, rank: 1}}\n"
                     : "model: {fault: {kind: nan_from, rank: 1, step: 5}}\n");
    job.limit_groups(1);
    job.do_not_replace({0, 1});
    job.run([&](Job& running) {
      if (!is_first && running.all_logs().find("\"step\":8") != std::string::npos) running.rank(1).signal(SIGKILL);
      if (running.is_absent(1) && running.is_waiting(0)) running.rank(0).signal(SIGTERM);
    });
    EXPECT_EQ(job.rank(0).wait(), to_int(ExitCode::kPeerLost)) << job.all_logs();
    EXPECT_FALSE(fs::exists(job.checkpoints() / "last"));
  }
}

// ---- saves ----------------------------------------------------------------------------------------------------------

TEST(Recovery, RankZeroInASave) {
  Job job(2, kConfig);
  bool killed = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (killed || !running.is_saving()) return;
    killed = true;
    running.rank(0).signal(SIGKILL);
  })) << job.all_logs();
  EXPECT_TRUE(killed);
  EXPECT_EQ(job.bits(), undisturbed(2));
  print_times(job);
}

// The names in a checkpoint directory, with the targets of links.
std::map<std::string, std::string> names_of(const fs::path& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(directory))
    out[entry.path().filename().string()] = entry.is_symlink() ? fs::read_symlink(entry.path()).string() : "";
  return out;
}

// Rank 0 is cut off and replaced. It returns when the run is complete, receives a signal, and tries to save its state.
TEST(Recovery, RankZeroThatWasCutOffDoesNotSave) {
  Job job(2, kConfig);
  std::unique_ptr<Program> old;
  ASSERT_TRUE(job.run([&](Job& running) {
    // The save has ended: a process that is stopped in it holds the lock of the directory, and each save of its
    // successor waits for the lock.
    if (old || running.rank(0).err().find("checkpoint saved") == std::string::npos) return;
    running.rank(0).signal(SIGSTOP);
    old = running.cut_off(0);
  })) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  const auto names = names_of(job.checkpoints());
  const int64_t reached = read_high_water(job.checkpoints());
  old->signal(SIGTERM);
  old->signal(SIGCONT);
  EXPECT_EQ(old->wait(), to_int(ExitCode::kTempFail)) << old->err();
  EXPECT_THAT(old->err(), testing::HasSubstr("generation 0 of attempt 0 of this job may not write here any more: "
                                             "generation 1 has taken over"));
  EXPECT_EQ(names_of(job.checkpoints()), names);
  EXPECT_EQ(read_high_water(job.checkpoints()), reached);
  EXPECT_EQ(job.bits(), undisturbed(2));
}

nlohmann::json state_of(const fs::path& checkpoint) {
  return nlohmann::json::parse(test::content(checkpoint / kStateFile));
}

// The save of the best weights is lost with rank 0. The others still have these weights.
void expect_best_checkpoint_survives(std::string config) {
  const std::string keep = "keep: 0";
  config.replace(config.find(keep), keep.size(), "keep: 0, best: {metric: loss, mode: max}");  // the first evaluation
  Job plain(2, config);
  EXPECT_TRUE(plain.run()) << plain.all_logs();
  const nlohmann::json best = state_of(plain.checkpoints() / "last").at("extra").at("best");
  ASSERT_EQ(best.at("step"), 7);
  Job job(2, config, "model: {fault: {kind: kill_forward, rank: 0, step: 7}}\n");
  EXPECT_TRUE(job.run()) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(state_of(job.checkpoints() / "last").at("extra").at("best"), best);
  EXPECT_EQ(job.bits(), plain.bits());
}

TEST(Recovery, RankZeroInTheSaveOfTheBestCheckpoint) { expect_best_checkpoint_survives(kConfig); }

// Step 7 is the last one of the epoch, and is saved first without the mark, because every_steps is 7, too.
TEST(Recovery, RankZeroInTheSecondSaveOfAStep) {
  expect_best_checkpoint_survives(
      "task: tiny\nsteps: 40\nbatch: {size: 16}\ndata: {samples: 224, eval_samples: 33}\nseed: 3\nthreads: 1\n"
      "optimizer: {name: adamw, lr: 0.003}\neval: {every_epochs: 1}\nlog: {every_steps: 5}\n"
      "checkpoint: {every_steps: 7, every_epochs: 0, keep: 0}\n");
}

// The others have the state, so that they do not need a checkpoint.
TEST(Recovery, TheNewestCheckpointIsDamagedWhenRankZeroIsLost) {
  for (const bool is_removed : {false, true}) {
    Job job(2, kConfig);
    fs::path damaged;
    EXPECT_TRUE(job.run([&](Job& running) {
      if (!damaged.empty() || !fs::exists(running.checkpoints() / "last")) return;
      running.rank(0).signal(SIGKILL);
      running.rank(0).wait();
      damaged = list_checkpoints(running.checkpoints()).value().front().path;
      if (is_removed) {
        fs::remove_all(damaged);
      } else {
        fs::resize_file(damaged / kStateFile, 0);
      }
    })) << job.all_logs();
    EXPECT_EQ(job.recoveries(), 1);
    EXPECT_EQ(job.bits(), undisturbed(2));
    EXPECT_EQ(job.lines_of("a checkpoint is damaged; the ranks continue from memory").size(), is_removed ? 0 : 1);
  }
}

// The others have the state and continue without saves, and so does the rank that replaces rank 0, until the directory
// is available again. `block` makes its path unusable.
void lose_rank_zero_without_directory(const std::function<void(const fs::path& directory)>& block) {
  Job plain(2, kConfig);
  ASSERT_TRUE(plain.run()) << plain.all_logs();
  Job job(2, kConfig, "model: {fault: {kind: slow, rank: 1}}\n");  // each step takes at least 200 ms
  const fs::path away = job.checkpoints().string() + "-away";
  bool is_back = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (is_back) return;
    if (!fs::exists(away)) {
      if (!fs::exists(running.checkpoints() / "last")) return;
      running.rank(0).signal(SIGKILL);
      running.rank(0).wait();  // it writes no further file
      fs::rename(running.checkpoints(), away);
      block(running.checkpoints());
    } else if (!running.recovery_lines().empty()) {
      fs::remove(running.checkpoints());
      fs::rename(away, running.checkpoints());
      is_back = true;
    }
  })) << job.all_logs();
  EXPECT_TRUE(is_back);
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(job.bits(), plain.bits());
  EXPECT_EQ(state_of(job.checkpoints() / "last").at("extra").at("best"),
            state_of(plain.checkpoints() / "last").at("extra").at("best"));
  EXPECT_EQ(job.lines_of("the checkpoint directory is not available; the next save tries again").size(), 1U)
      << job.all_logs();
}

TEST(Recovery, TheDirectoryIsNotAvailableWhenRankZeroIsLost) {
  lose_rank_zero_without_directory([](const fs::path& directory) { std::ofstream(directory) << "in the way"; });
}

// A directory that does not exist is not one without checkpoints, whose best one may be removed.
TEST(Recovery, TheDirectoryIsMissingWhenRankZeroIsLost) {
  lose_rank_zero_without_directory([](const fs::path& directory) { fs::create_symlink("not-mounted", directory); });
}

// A replaced rank 0 counts the steps that were skipped before it was started.
TEST(Recovery, SkippedStepsOfALostRankCount) {
  const std::string config =
      "task: tiny\nsteps: 400\nbatch: {size: 16}\ndata: {samples: 208, eval_samples: 33}\nseed: 3\nthreads: 1\n"
      "optimizer: {name: adamw, lr: 0.003}\neval: {every_epochs: 0}\nlog: {every_steps: 1000}\n"
      "nonfinite: {loss: skip, gradient: skip, max_share: 0.5}\n"
      "checkpoint: {every_steps: 1000, every_epochs: 0, best: {save: false}}\n"
      "model: {fault: {kind: nan, rank: 1, step: 12}}\n";
  Job job(2, config);
  bool killed = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (killed || running.all_logs().find("\"step\":16") == std::string::npos) return;
    killed = true;
    running.rank(0).signal(SIGKILL);
  })) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(state_of(job.checkpoints() / "last").at("sections").at("nonfinite").at("skipped"), 1);
}

// The rank 0 that replaces the killed one has the state, but another rank is killed before the group is complete. The
// new rank 0 is then the donor, although it has never trained.
TEST(Recovery, AnotherLossWhileTheNewRankZeroJoins) {
  const std::string config = std::string(kConfig) + "ddp: {shared_memory: false, bucket_cap_mb: 0.001}\n";
  Job job(4, config);
  std::optional<test::BlockedFile> marks;  // which the new rank 0 reads after it has received the state
  bool is_other_killed = false;
  bool done = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (done) return;
    if (!marks) {
      if (!fs::exists(running.checkpoints() / "last")) return;
      running.rank(0).signal(SIGKILL);
      running.rank(0).wait();  // it writes no further checkpoint
      marks.emplace(list_checkpoints(running.checkpoints()).value().front().path / kManifestFile);
    } else if (!is_other_killed) {
      if (running.recoveries() < 1 || !marks->has_reader()) return;
      running.rank(3).signal(SIGKILL);
      is_other_killed = true;
    } else if (running.others_have_left(0)) {
      marks.reset();
      done = true;
    }
  })) << job.all_logs();
  EXPECT_TRUE(done);
  EXPECT_EQ(job.recoveries(), 2);
  EXPECT_EQ(job.starts(), 4 + 2);
  const std::vector<nlohmann::json> recoveries = job.recovery_lines();
  ASSERT_EQ(recoveries.size(), 1U) << job.all_logs();
  EXPECT_EQ(recoveries[0]["rank"], 0) << "the donor";
  EXPECT_EQ(job.bits(), undisturbed(4, config));
}

// The steps of each tag in TensorBoard's files, in their order.
std::map<std::string, std::vector<int64_t>> reported_steps(const fs::path& directory) {
  std::set<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) files.insert(entry.path());
  std::map<std::string, std::vector<int64_t>> out;
  for (const fs::path& file : files) {
    const Result<std::string> content = read_file(file);
    std::string_view left = content ? std::string_view(*content) : std::string_view();
    while (const auto record = next_record(source_of(left))) {
      const auto points = read_points(*record);
      EXPECT_TRUE(points);
      if (!points) continue;
      for (const std::string& tag : points->tags) out[tag].push_back(points->step);
    }
  }
  return out;
}

// The destinations get each point once, from the rank 0 that was killed or from the one that replaced it.
TEST(Recovery, AReplacedRankZeroReportsTheRun) {
  // Each step takes at least 200 ms, so that rank 0 is killed long before the next point.
  Job job(2, kConfig,
          "tracking: {histograms_every_steps: 20, tensorboard: {enabled: true}, wandb: {enabled: true}}\n"
          "model: {fault: {kind: slow, rank: 0}}\n");
  bool is_killed = false;
  ASSERT_TRUE(job.run([&](Job& running) {
    if (is_killed || reported_steps(running.checkpoints() / "tensorboard")["loss"].size() < 5) return;
    running.rank(0).signal(SIGKILL);
    is_killed = true;
  })) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(job.bits(), undisturbed(2));
  std::map<std::string, std::vector<int64_t>> steps = reported_steps(job.checkpoints() / "tensorboard");
  EXPECT_THAT(steps["loss"], testing::ElementsAre(5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60));
  int histograms = 0;
  for (const auto& [tag, at] : steps) {
    if (!tag.starts_with("gradients/")) continue;
    ++histograms;
    EXPECT_THAT(at, testing::ElementsAre(20, 40, 60)) << tag;
  }
  EXPECT_GT(histograms, 0);
  WandbContents contents;
  for (const auto& entry : fs::recursive_directory_iterator(job.checkpoints() / "wandb")) {
    if (entry.path().extension() != ".wandb") continue;
    const std::string content = *read_file(entry.path());
    std::string_view left = content;
    read_wandb_contents(source_of(left), contents);
  }
  ASSERT_TRUE(contents.newest.contains("loss"));
  EXPECT_EQ(contents.newest["loss"].step, 60);
}

class HungRank : public testing::TestWithParam<const char*> {};

TEST_P(HungRank, IsReplacedAfterTheTimeout) {
  Job job(2, kConfig, fmt::format("distributed: {{timeout_seconds: 1.5}}\n{}", GetParam()));
  bool stopped = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (!stopped && running.is_saving()) {
      running.rank(1).signal(SIGSTOP);
      stopped = true;
    }
    // A launcher does the same with a rank that has not left the group when the others have.
    if (stopped && running.others_have_left(1) && running.starts() == 2) running.rank(1).signal(SIGKILL);
  })) << job.all_logs();
  EXPECT_EQ(job.bits(), undisturbed(2));
  const std::vector<nlohmann::json> recovered = job.recovery_lines();
  ASSERT_EQ(recovered.size(), 1U) << job.all_logs();
  EXPECT_EQ(recovered[0]["ranks"], "1");
  EXPECT_THAT(recovered[0]["reason"].get<std::string>(), testing::HasSubstr("rank 1 does not respond"));
  print_times(job);
}

INSTANTIATE_TEST_SUITE_P(EachTransport, HungRank, testing::Values("", kOverGloo), [](const auto& test_case) {
  return std::string(*test_case.param == '\0' ? "shared_memory" : "gloo");
});

// Kills also hit ranks that start, wait for the others, or send or receive state. If no rank has state left, the new
// processes start from the newest checkpoint.
TEST(Recovery, RepeatedKillsChangeNoBit) {
  const std::string config =
      "task: tiny\nsteps: 400\nbatch: {size: 16}\ndata: {samples: 208, eval_samples: 33}\n"
      "optimizer: {name: adamw, lr: 0.003}\nema: {enabled: true, decay: 0.9}\neval: {every_steps: 25}\n"
      "checkpoint: {every_steps: 20, keep: 0}\nseed: 3\nthreads: 1\n";
  constexpr int kKills = 8;
  std::mt19937 random(7);
  Job job(3, config);
  int kills = 0;
  auto next = std::chrono::steady_clock::time_point::max();
  EXPECT_TRUE(job.run([&](Job& running) {
    if (kills == 0 && running.is_saving()) next = std::chrono::steady_clock::now();
    // A rank that is lost when others have exited already cannot be replaced.
    const bool is_enough = kills == kKills || kills >= 2 * (running.recoveries() + 1) ||
                           fs::exists(running.checkpoints() / checkpoint_directory_name(300));
    if (is_enough || std::chrono::steady_clock::now() < next) return;
    const int victim = static_cast<int>(random() % 3);
    if (!test::alive(running.rank(victim).pid())) return;
    running.rank(victim).signal(SIGKILL);
    ++kills;
    next = std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 700);
  })) << job.all_logs();
  EXPECT_GE(kills, 1);
  EXPECT_EQ(job.bits(), undisturbed(3, config)) << job.all_logs();
  std::printf("%d kills, %d groups\n", kills, job.recoveries() + 1);
  print_times(job);
}

// ---- another number of ranks ---------------------------------------------------------------------------------------

// The rates and the batches depend on the number of ranks, and the epochs define the length of the run.
constexpr char kScaled[] =
    "task: tiny\nepochs: 5\ndata: {samples: 208, eval_samples: 33}\n"
    "optimizer: {name: adamw, lr: 0.003, groups: [{preset: no_decay, lr: 0.001}]}\nema: {enabled: true, decay: 0.9}\n"
    "schedule: {name: cosine, warmup_steps: 10}\n"
    "gradient: {accumulation_steps: 2, clip_norm: 1.0}\n"
    "checkpoint: {every_steps: 6, every_epochs: 0, best: {save: false}, keep: 0}\nlog: {every_steps: 5}\nseed: "
    "3\nthreads: 1\n";

struct Shrink {
  std::string name;
  int world_size = 3;
  int ranks_per_node = 1;
  std::set<int> lost = {};
  std::string batch = "batch: {size: 8}\nscaling: {lr: linear, warmup: linear}\n";
};

std::ostream& operator<<(std::ostream& out, const Shrink& shrink) { return out << shrink.name; }

class FewerRanks : public testing::TestWithParam<Shrink> {};

// Stops all ranks after step 6, whose checkpoint is the last one, and resumes it with fewer.
std::string bits_of_resumed_run(const Shrink& shrink) {
  constexpr char kStop[] = "model: {fault: {kind: kill_forward, rank: 1, step: 9}}\n";
  Job stopped(shrink.world_size, kScaled, shrink.batch + kStop, /*with_channel=*/false, shrink.ranks_per_node);
  std::set<int> all;
  for (int rank = 0; rank < shrink.world_size; ++rank) all.insert(rank);
  stopped.do_not_replace(all);
  EXPECT_TRUE(stopped.run()) << stopped.all_logs();
  EXPECT_EQ(find_latest_checkpoint(stopped.checkpoints())->step, 6) << stopped.all_logs();
  Job resumed(shrink.world_size - static_cast<int>(shrink.lost.size()), kScaled, shrink.batch, /*with_channel=*/false,
              shrink.ranks_per_node, stopped.checkpoints());
  EXPECT_TRUE(resumed.run()) << resumed.all_logs();
  return resumed.bits();
}

TEST_P(FewerRanks, ContinueAsARunThatIsResumedWithFewer) {
  const Shrink& shrink = GetParam();
  const int first = *shrink.lost.begin();
  Job job(shrink.world_size, kScaled,
          fmt::format("{}model: {{fault: {{kind: kill_forward, rank: {}, step: 6}}}}\n", shrink.batch, first),
          /*with_channel=*/true, shrink.ranks_per_node);
  job.do_not_replace(shrink.lost);
  ASSERT_TRUE(job.run([&](Job& running) {
    if (!running.is_absent(first)) return;
    for (const int rank : shrink.lost) {
      if (test::alive(running.rank(rank).pid())) running.rank(rank).signal(SIGKILL);
    }
  })) << job.all_logs();
  EXPECT_EQ(job.starts(), shrink.world_size) << "the other ranks are the same processes";
  EXPECT_THAT(job.all_logs(), testing::HasSubstr("training continues with fewer ranks, without a checkpoint"));
  EXPECT_EQ(job.bits(), bits_of_resumed_run(shrink)) << job.all_logs();
}

INSTANTIATE_TEST_SUITE_P(
    EachSize, FewerRanks,
    testing::Values(
        Shrink{.name = "two_of_three", .lost = {2}}, Shrink{.name = "without_rank_1", .lost = {1}},
        Shrink{.name = "one_of_two", .world_size = 2, .lost = {1}},
        Shrink{.name = "one_node_of_two", .world_size = 4, .ranks_per_node = 2, .lost = {2, 3}},
        Shrink{.name = "global_batch", .world_size = 4, .lost = {1, 3}, .batch = "batch: {size: 32, per: global}\n"}),
    [](const auto& test_case) { return test_case.param.name; });

// A rank that is started again joins the group between two steps. The run ends as one that was stopped at both steps
// and resumed each time with the other number of ranks.
TEST(MoreRanks, ContinueAsARunThatIsResumedWithMore) {
  const auto config = [](int64_t steps) {
    return fmt::format(
        "task: tiny\nsteps: {}\nbatch: {{size: 8}}\ndata: {{samples: 208, eval_samples: 33}}\nseed: 3\nthreads: 1\n"
        "optimizer: {{name: adamw, lr: 0.001}}\nschedule: {{warmup_steps: 10}}\nema: {{enabled: true, decay: 0.9}}\n"
        "scaling: {{lr: linear, warmup: linear}}\neval: {{every_epochs: 0}}\nlog: {{every_steps: 50}}\n",
        steps);
  };
  constexpr int64_t kSteps = 1000;
  for (const int world_size : {2, 3}) {
    const int lost = world_size - 1;
    Job job(world_size, config(kSteps),
            fmt::format("model: {{fault: {{kind: kill_forward, rank: {}, step: 6}}}}\n", lost));
    job.do_not_replace({lost});
    // The others are stopped while the process starts, because they would finish meanwhile.
    enum class Lost { kRuns, kStarts, kJoins } state = Lost::kRuns;
    ASSERT_TRUE(job.run([&](Job& running) {
      const auto signal_others = [&](int number) {
        for (int rank = 0; rank < lost; ++rank) running.rank(rank).signal(number);
      };
      if (state == Lost::kRuns && running.is_absent(lost) && running.recoveries() >= 1) {
        signal_others(SIGSTOP);
        running.bring_back(lost);
        state = Lost::kStarts;
      } else if (state == Lost::kStarts && running.is_waiting(lost)) {
        signal_others(SIGCONT);
        state = Lost::kJoins;
      }
    })) << job.all_logs();
    const std::vector<nlohmann::json> fewer = job.lines_of("training continues with fewer ranks, without a checkpoint");
    const std::vector<nlohmann::json> more = job.lines_of("training continues with more ranks, without a checkpoint");
    ASSERT_EQ(fewer.size(), 1U) << job.all_logs();
    ASSERT_EQ(more.size(), 1U) << job.all_logs();
    EXPECT_EQ(fewer[0]["step"], 6);
    EXPECT_EQ(fewer[0]["world_size"], world_size - 1);
    EXPECT_EQ(more[0]["world_size"], world_size);
    const auto run_until = [&](int ranks, int64_t steps, const fs::path& checkpoints) {
      Job part(ranks, config(steps), "", /*with_channel=*/false, 0, checkpoints);
      EXPECT_TRUE(part.run()) << part.all_logs();
    };
    const TemporaryDirectory parts;
    run_until(world_size, 6, parts.path());
    run_until(world_size - 1, more[0]["step"], parts.path());
    run_until(world_size, kSteps, parts.path());
    EXPECT_EQ(job.bits(), bits_of(parts.path() / "last")) << job.all_logs();
  }
}

// The kills occur in the forward and backward pass, the all-reduce, the optimizer, and between steps.
TEST(Recovery, KillsAtRandomTimesChangeNoBit) {
  std::mt19937 random(20261123);
  for (const int world_size : {2, 4}) {
    for (int round = 0; round < 4; ++round) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(world_size));
      const int step = static_cast<int>(random() % 55);
      const int delay = 1 + static_cast<int>(random() % 4000);
      const std::string config = std::string(kConfig) + (round % 2 == 0 ? "" : kOverGloo);
      Job job(
          world_size, config,
          fmt::format("model: {{fault: {{kind: kill_later, rank: {}, step: {}, delay: {}}}}}\n", rank, step, delay));
      EXPECT_TRUE(job.run()) << job.all_logs();
      EXPECT_EQ(job.bits(), undisturbed(world_size, config))
          << "rank " << rank << " of " << world_size << ", step " << step << ", " << delay << " us\n"
          << job.all_logs();
      print_times(job);
    }
  }
}

}  // namespace
}  // namespace oarlock
