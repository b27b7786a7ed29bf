// oarlock launch --restart-policy rank with oarlock-trainer: ranks that are killed are replaced while the others keep
// their state, no step is lost, and the run ends with the bits of an undisturbed one.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "common/port_reservation.h"
#include "tests/support/cifar_directory.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace oarlock::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int kSteps = 300;

// Batch norm, momentum, an average of the weights and augmentation: all state that a replacement must receive.
std::string config_of(const CifarDirectory& data, const fs::path& checkpoints, int steps) {
  return fmt::format(
      "task: image_classification\nseed: 3\nsteps: {}\ndata: {{path: {}, augment: {{crop_padding: 4, flip: true}}}}\n"
      "model: {{name: resnet_like, width: 4}}\nbatch: {{size: 8}}\noptimizer: {{name: adamw, lr: 0.002}}\n"
      "ema: {{enabled: true, decay: 0.99}}\nlog: {{every_steps: 1}}\ncheckpoint: {{dir: {}, every_steps: 70}}\n",
      steps, data.path().string(), checkpoints.string());
}

// A variable of a process. A rank that was a standby process has its environment in a file in memory.
std::optional<std::string> environment_of_process(pid_t pid, const std::string& name) {
  std::string text = content(fmt::format("/proc/{}/environ", pid));
  std::error_code ignored;
  for (fs::directory_iterator entry(fmt::format("/proc/{}/fd", pid), ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    std::error_code closed;
    if (fs::read_symlink(entry->path(), closed).string().find("oarlock-environment") != std::string::npos)
      text = content(entry->path());
  }
  std::istringstream variables(text);
  for (std::string variable; std::getline(variables, variable, '\0');) {
    if (variable.starts_with(name + "=")) return variable.substr(name.size() + 1);
  }
  return std::nullopt;
}

// The launchers of `nodes` nodes on this machine, with two ranks each.
class Launchers {
 public:
  // `checkpoints` is the directory of an earlier run; empty: a new one.
  Launchers(int nodes, const CifarDirectory& data, const std::vector<std::string>& options, int steps = kSteps,
            const fs::path& checkpoints = {}, const std::map<std::string, std::string>& environment = {})
      : nodes_(nodes),
        options_(options),
        environment_(environment),
        checkpoints_(checkpoints.empty() ? directory_.path() / "checkpoints" : checkpoints) {
    std::ofstream(config()) << config_of(data, checkpoints_, steps);
    for (int node = 0; node < nodes; ++node) programs_.push_back(start(node));
  }

  // Kills the launcher of a node, and with it the ranks of the node.
  void kill_node(int node) {
    Program& program = *programs_[static_cast<size_t>(node)];
    program.signal(SIGKILL);
    program.wait();
    earlier_log_ += program.err();
  }
  void start_again(int node) { programs_[static_cast<size_t>(node)] = start(node); }

  // Waits for this message of a rank or a launcher, and returns the number of the field `step` in its line; nothing if
  // the run ends without it.
  std::optional<int> wait_for_message(const std::string& message) const {
    if (!eventually([&] { return log().find(message) != std::string::npos || has_ended(); })) return std::nullopt;
    for (const std::string& line : lines(log())) {
      const size_t at = line.find("\"step\":");
      if (line.find(message) != std::string::npos && at != std::string::npos) return std::stoi(line.substr(at + 7));
    }
    return std::nullopt;
  }

  fs::path checkpoints() const { return checkpoints_; }
  std::string config() const { return (directory_.path() / "trainer.yaml").string(); }

  // Waits until a rank logs this step or a later one of the run. False if it never does.
  bool wait_for_step(int step) const {
    return eventually([&] { return last_step() >= step || has_ended(); }) && last_step() >= step;
  }

  // The processes that the launcher of this node has started, in this order.
  std::vector<pid_t> processes(int node) const {
    const pid_t launcher = programs_[static_cast<size_t>(node)]->pid();
    std::istringstream children(content(fmt::format("/proc/{0}/task/{0}/children", launcher)));
    std::vector<pid_t> out;
    for (pid_t pid = 0; children >> pid;) out.push_back(pid);
    return out;
  }

  // The process of a rank of this node; the newest one if it was replaced.
  std::optional<pid_t> rank_process(int node, int rank) const {
    std::optional<pid_t> newest;
    for (const pid_t pid : processes(node)) {
      if (environment_of_process(pid, "RANK") == std::to_string(rank)) newest = pid;
    }
    return newest;
  }

  // Waits for a standby process of this node other than `earlier`. -1 if the run ends without one.
  pid_t standby_process(int node, pid_t earlier = -1) const {
    pid_t found = -1;
    eventually([&] {
      for (const pid_t pid : processes(node)) {
        if (pid != earlier && environment_of_process(pid, "OARLOCK_STANDBY_FD")) found = pid;
      }
      return found > 0 || has_ended();
    });
    return found;
  }

  void signal(int node, int number) const { programs_[static_cast<size_t>(node)]->signal(number); }

  // Kills the process of a rank, once it has logged `step`, and waits until the others have recovered.
  void kill_at(int step, int node, int rank) {
    ASSERT_TRUE(wait_for_step(step)) << log();
    const int before = recoveries();
    const auto pid = rank_process(node, rank);
    ASSERT_TRUE(pid) << log();
    ::kill(*pid, SIGKILL);
    ASSERT_TRUE(eventually([&] { return recoveries() > before || has_ended(); })) << log();
    ASSERT_GT(recoveries(), before) << log();
  }

  std::vector<int> wait() {
    std::vector<int> codes;
    for (const auto& program : programs_) codes.push_back(program->wait());
    return codes;
  }

  std::string log() const {
    std::string out = earlier_log_;
    for (const auto& program : programs_) out += program->err();
    return out;
  }

  // The tensors of the last checkpoint.
  std::string bits() const {
    const fs::path last = checkpoints_ / "last";
    std::string out;
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "ema.safetensors"}) {
      EXPECT_FALSE(content(last / file).empty()) << file;
      out += content(last / file);
    }
    return out;
  }

  int recoveries() const {
    int count = 0;
    for (const std::string& line : lines(log()))
      count += line.find("without a checkpoint\"") != std::string::npos ? 1 : 0;
    return count;
  }

 private:
  int last_step() const {
    int step = 0;
    const std::string key = "\"step\":";
    for (const std::string& line : lines(log())) {
      const size_t at = line.find("\"msg\":\"step\"") == std::string::npos ? std::string::npos : line.find(key);
      if (at != std::string::npos) step = std::stoi(line.substr(at + key.size()));
    }
    return step;
  }
  bool has_ended() const {
    return std::ranges::none_of(programs_, [](const auto& program) { return alive(program->pid()); });
  }

  std::unique_ptr<Program> start(int node) const {
    std::vector<std::string> argv = {oarlock(), "launch", "--nproc", "2", "--no-prefix"};
    if (nodes_ > 1) {
      for (const std::string& word : {std::string("--nnodes"), std::to_string(nodes_), std::string("--node-rank"),
                                      std::to_string(node), std::string("--master-addr"), std::string("127.0.0.1"),
                                      std::string("--master-port"), std::to_string(port_.first())})
        argv.push_back(word);
    }
    argv.insert(argv.end(), options_.begin(), options_.end());
    for (const std::string& word :
         {std::string("--"), test::program_path("oarlock-trainer"), std::string("--log-format"), std::string("json"),
          std::string("--config"), config()})
      argv.push_back(word);
    ProgramOptions program;
    program.environment = environment_;
    program.environment["OARLOCK_REGROUP_TOKEN"] = "a token of this test";
    return std::make_unique<Program>(argv, program);
  }

  const PortReservation port_ = *PortReservation::make(2);  // the rendezvous, and the launchers (docs/recovery.md)
  TemporaryDirectory directory_;
  int nodes_;
  std::vector<std::string> options_;
  std::map<std::string, std::string> environment_;
  fs::path checkpoints_;
  std::string earlier_log_;
  std::vector<std::unique_ptr<Program>> programs_;
};

const std::vector<std::string> kByRank = {"--max-restarts", "10", "--restart-policy", "rank"};

class LiveRecovery : public testing::Test {
 protected:
  // Returns the final state of a run without failures.
  std::string undisturbed(int nodes) {
    Launchers run(nodes, data_, kByRank);
    EXPECT_THAT(run.wait(), testing::Each(0)) << run.log();
    EXPECT_EQ(run.recoveries(), 0);
    return run.bits();
  }

  const CifarDirectory data_{48};
};

TEST_F(LiveRecovery, KilledRanksCostNoStepAndNoBit) {
  Launchers run(1, data_, kByRank);
  run.kill_at(20, 0, 1);
  EXPECT_THAT(content(run.checkpoints() / "fence.json"), HasSubstr("\"generation\":1")) << "before the first save";
  run.kill_at(60, 0, 0);
  run.kill_at(100, 0, 0);
  EXPECT_THAT(run.wait(), testing::Each(0)) << run.log();
  EXPECT_EQ(run.recoveries(), 3) << run.log();
  EXPECT_TRUE(run.bits() == undisturbed(1));
}

TEST_F(LiveRecovery, KilledRanksOfTwoNodesCostNoStepAndNoBit) {
  Launchers run(2, data_, kByRank);
  run.kill_at(20, 1, 3);
  run.kill_at(60, 0, 0);
  EXPECT_THAT(run.wait(), testing::Each(0)) << run.log();
  EXPECT_EQ(run.recoveries(), 2) << run.log();
  EXPECT_TRUE(run.bits() == undisturbed(2));
}

// When a node is lost, the group continues with the other one, whose ranks keep their processes and their state, and
// admits the node when it is back. The run ends with the bits of one that was stopped at both steps, and resumed each
// time with the other number of nodes.
TEST_F(LiveRecovery, ContinuesWithFewerNodesAndGrowsBack) {
  std::vector<std::string> options = kByRank;
  for (const char* word : {"--min-nodes", "1", "--shrink-after", "3"}) options.emplace_back(word);
  constexpr int kLongRun = 600;
  Launchers run(2, data_, options, kLongRun);
  ASSERT_TRUE(run.wait_for_step(20)) << run.log();
  const auto survivor = run.rank_process(0, 1);
  run.kill_node(1);
  const auto fewer = run.wait_for_message("training continues with fewer ranks, without a checkpoint");
  ASSERT_TRUE(fewer) << run.log();
  ASSERT_TRUE(run.wait_for_step(*fewer + 5)) << run.log();
  EXPECT_EQ(run.rank_process(0, 1), survivor);
  run.start_again(1);
  const auto more = run.wait_for_message("training continues with more ranks, without a checkpoint");
  ASSERT_TRUE(more) << run.log();
  EXPECT_EQ(run.rank_process(0, 1), survivor);
  EXPECT_THAT(run.wait(), testing::Each(0)) << run.log();
  EXPECT_THAT(run.log(), testing::Not(HasSubstr("joins the group; restart"))) << "it does not count";

  Launchers before(2, data_, kByRank, *fewer);
  EXPECT_THAT(before.wait(), testing::Each(0)) << before.log();
  Launchers between(1, data_, kByRank, *more, before.checkpoints());
  EXPECT_THAT(between.wait(), testing::Each(0)) << between.log();
  Launchers after(2, data_, kByRank, kLongRun, before.checkpoints());
  EXPECT_THAT(after.wait(), testing::Each(0)) << after.log();
  EXPECT_TRUE(run.bits() == after.bits()) << run.log();
}

// A standby process becomes the next lost rank, whichever it is, and another one follows it. Without one, a rank starts
// as before.
TEST_F(LiveRecovery, AStandbyProcessReplacesALostRank) {
  constexpr int kLongRun = 1500;
  Launchers run(1, data_, kByRank, kLongRun);
  const pid_t first = run.standby_process(0);
  ASSERT_GT(first, 0) << run.log();
  run.kill_at(1, 0, 1);
  EXPECT_EQ(run.rank_process(0, 1), first) << run.log();
  const pid_t second = run.standby_process(0, first);
  ASSERT_GT(second, 0) << run.log();
  run.kill_at(1, 0, 0);
  EXPECT_EQ(run.rank_process(0, 0), second) << run.log();
  const pid_t third = run.standby_process(0, second);
  ASSERT_GT(third, 0) << run.log();
  ::kill(third, SIGKILL);
  ASSERT_TRUE(eventually([&] { return !alive(third); }));
  run.kill_at(1, 0, 1);
  EXPECT_THAT(run.wait(), testing::Each(0)) << run.log();
  EXPECT_EQ(run.recoveries(), 3) << run.log();
  EXPECT_THAT(run.log(), testing::Not(HasSubstr("OARLOCK_STANDBY_FD")));
  Launchers other(1, data_, kByRank, kLongRun);
  EXPECT_THAT(other.wait(), testing::Each(0)) << other.log();
  EXPECT_TRUE(run.bits() == other.bits());
}

// The launcher cannot know that a process is stopped, or waits for a file server, before it has become the rank.
TEST_F(LiveRecovery, AStoppedStandbyProcessIsReplaced) {
  std::vector<std::string> options = kByRank;
  options.insert(options.end(), {"--rejoin-timeout", "30"});
  Launchers run(1, data_, options, 100'000);
  const pid_t first = run.standby_process(0);
  ASSERT_GT(first, 0) << run.log();
  ::kill(first, SIGSTOP);
  run.kill_at(1, 0, 1);
  EXPECT_EQ(run.recoveries(), 1) << run.log();
  EXPECT_FALSE(alive(first));
  EXPECT_THAT(run.log(), HasSubstr("the standby process that replaces rank 1 does not respond: sent SIGKILL"));
  const pid_t second = run.standby_process(0, first);
  ASSERT_GT(second, 0) << run.log();
  run.kill_at(1, 0, 0);
  EXPECT_EQ(run.rank_process(0, 0), second) << run.log();
  run.signal(0, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !alive(second); }));
}

TEST_F(LiveRecovery, AnotherStandbyProcessFollowsOneThatEnds) {
  Launchers run(1, data_, kByRank, 100'000);
  const pid_t first = run.standby_process(0);
  ASSERT_GT(first, 0) << run.log();
  ::kill(first, SIGKILL);
  const pid_t second = run.standby_process(0, first);
  ASSERT_GT(second, 0) << run.log();
  run.kill_at(1, 0, 1);
  EXPECT_EQ(run.rank_process(0, 1), second) << run.log();
  run.signal(0, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !alive(second); }));
}

TEST_F(LiveRecovery, AStandbyProcessEndsWithItsLauncher) {
  for (const int number : {SIGKILL, SIGTERM}) {
    Launchers run(1, data_, kByRank, 100'000);
    const pid_t standby = run.standby_process(0);
    ASSERT_GT(standby, 0) << run.log();
    run.signal(0, number);
    EXPECT_TRUE(eventually([&] { return !alive(standby); })) << "signal " << number;
    run.wait();
  }
}

// The default is as before: the loss of a rank ends the group.
// The launcher handles the loss of a rank and a signal in the same moment. Rank 0 saves its state alone.
TEST_F(LiveRecovery, SignalTogetherWithALossLosesNoStep) {
  Launchers run(1, data_, kByRank);
  ASSERT_TRUE(run.wait_for_step(20)) << run.log();
  const auto lost = run.rank_process(0, 1);
  ASSERT_TRUE(lost) << run.log();
  run.signal(0, SIGSTOP);
  ::kill(*lost, SIGKILL);
  run.signal(0, SIGTERM);
  run.signal(0, SIGCONT);
  EXPECT_THAT(run.wait(), testing::Each(to_int(ExitCode::kTempFail))) << run.log();
  EXPECT_EQ(run.recoveries(), 0) << run.log();
  EXPECT_THAT(run.log(), HasSubstr("saved, a new start resumes there"));
  Launchers resumed(1, data_, kByRank, kSteps, run.checkpoints());
  EXPECT_THAT(resumed.wait(), testing::Each(0)) << resumed.log();
  EXPECT_TRUE(resumed.bits() == undisturbed(1)) << resumed.log();
}

// The replacement of rank 1 reads a configuration file that was edited meanwhile, or another copy of the data.
TEST_F(LiveRecovery, AReplacementThatDiffersEndsTheGroup) {
  for (const bool data_differ : {false, true}) {
    const CifarDirectory data{8};
    std::vector<std::string> options = kByRank;
    options.emplace_back("--no-standby");
    Launchers run(1, data, options, 100'000);
    ASSERT_TRUE(run.wait_for_step(5)) << run.log();
    if (data_differ) {
      data.write("new.bin", 8, 10, 7);
      fs::rename(data / "new.bin", data / "data_batch_2.bin");
    } else {
      std::ofstream(run.config(), std::ios::app) << "gradient: {clip_norm: 2}\n";
    }
    const auto pid = run.rank_process(0, 1);
    ASSERT_TRUE(pid) << run.log();
    ::kill(*pid, SIGKILL);
    EXPECT_THAT(run.wait(), testing::Each(data_differ ? 65 : 78)) << run.log();
    EXPECT_THAT(run.log(), HasSubstr(data_differ ? "the ranks differ: data.train.fingerprint is "
                                                 : "the ranks differ: gradient.clip_norm is 2 on rank 1, but absent"));
    EXPECT_EQ(run.recoveries(), 0) << run.log();
  }
}

// Another launcher of node rank 0, with another rank 1, has formed a group of the next generation.
TEST_F(LiveRecovery, AGroupThatCannotClaimTheFenceEnds) {
  for (const int lost : {0, 1}) {
    Launchers run(1, data_, kByRank, 100'000, {}, {{"OARLOCK_UID", "job"}, {"OARLOCK_ATTEMPT", "0"}});
    ASSERT_TRUE(run.wait_for_step(5)) << run.log();
    const auto pid = run.rank_process(0, lost);
    ASSERT_TRUE(pid) << run.log();
    std::ofstream(run.checkpoints() / "new.json")
        << R"({"uid": "job", "attempt": 0, "generation": 1, "displaced": [], "group": "oarlock/1/b"})";
    fs::rename(run.checkpoints() / "new.json", run.checkpoints() / "fence.json");
    ::kill(*pid, SIGKILL);
    EXPECT_THAT(run.wait(), testing::Each(to_int(ExitCode::kPeerLost))) << run.log();
    EXPECT_THAT(run.log(), HasSubstr("another launcher of node rank 0 has taken the place of this one"));
    EXPECT_EQ(run.recoveries(), 0) << run.log();
  }
}

TEST_F(LiveRecovery, WithoutRestartsTheGroupEnds) {
  Launchers run(1, data_, {});
  ASSERT_TRUE(run.wait_for_step(10)) << run.log();
  const auto pid = run.rank_process(0, 1);
  ASSERT_TRUE(pid);
  ::kill(*pid, SIGKILL);
  EXPECT_THAT(run.wait(), testing::Each(128 + SIGKILL)) << run.log();
  EXPECT_EQ(run.recoveries(), 0);
}

}  // namespace
}  // namespace oarlock::test
