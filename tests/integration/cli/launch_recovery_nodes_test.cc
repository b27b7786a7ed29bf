// Recovery by launchers on two nodes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include "tests/integration/cli/launch_recovery_support.h"

namespace oarlock::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

TEST_F(TwoNodes, KilledRankRejoinsAcrossNodes) {
  const std::vector<std::string> options = {"--nproc", "1", "--max-restarts", "1", "--restart-policy", "rank"};
  Program second = start(1, options, rank_program("kill"), "secret");
  Program first = start(0, options, rank_program("kill"), "secret");
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_EQ(first.out(), "rank 0 of 2, donor 0, step 5\n");
  EXPECT_EQ(second.out(), "rank 1 of 2, donor 0, step 5\n");
}

// The environment is that of the pods of a job with failurePolicy.restartScope Rank.
TEST_F(TwoNodes, OperatorsVariablesSetTheRestarts) {
  const std::map<std::string, std::string> variables = {{"OARLOCK_REGROUP_TOKEN", "secret"},
                                                        {"OARLOCK_MAX_RESTARTS", "1"},
                                                        {"OARLOCK_RESTART_POLICY", "rank"},
                                                        {"OARLOCK_RESTART_BACKOFF", "10"}};
  Program second = start(1, {"--nproc", "1"}, rank_program("kill"), variables);
  Program first = start(0, {"--nproc", "1"}, rank_program("kill"), variables);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_EQ(second.out(), "rank 1 of 2, donor 0, step 5\n");

  const std::vector<std::string> print = {"/bin/bash", "-c", "env | grep -c '^OARLOCK_R[E]' || true"};
  Program alone(launch({"--nproc", "1", "--no-prefix"}, print), {.environment = variables});
  EXPECT_EQ(alone.wait(), 0) << alone.err();
  EXPECT_EQ(alone.out(), "0\n") << "the ranks do not receive them";

  for (const auto& [name, value] : {std::pair("OARLOCK_MAX_RESTARTS", "-1"), {"OARLOCK_RESTART_POLICY", "pod"}}) {
    std::map<std::string, std::string> invalid = variables;
    invalid[name] = value;
    Program refused(launch({"--nproc", "2"}, {"/bin/true"}), {.environment = invalid});
    EXPECT_EQ(refused.wait(), 78);
    EXPECT_THAT(refused.err(), HasSubstr(name));
  }
}

// The launcher of a node is killed with its ranks, as a pod is, and the operator's replacement takes its place.
class ReplacedNode : public TwoNodes, public testing::WithParamInterface<int> {};

TEST_P(ReplacedNode, JoinsTheSurvivors) {
  const int lost = GetParam();
  std::map<std::string, std::string> variables = {
      {"OARLOCK_REGROUP_TOKEN", "secret"}, {"OARLOCK_MAX_RESTARTS", "1"}, {"OARLOCK_RESTART_POLICY", "rank"}};
  const auto start_node = [&](int node) {
    return std::unique_ptr<Program>(new Program(start(node, {"--nproc", "1"}, rank_program("none"), variables)));
  };
  const std::unique_ptr<Program> survivor = start_node(1 - lost);
  const std::unique_ptr<Program> first = start_node(lost);
  ASSERT_GT(number_in(directory_.path() / "pid.0"), 0) << survivor->err() << first->err();
  ASSERT_GT(number_in(directory_.path() / "pid.1"), 0) << survivor->err() << first->err();
  const int rank = number_in(directory_.path() / ("pid." + std::to_string(lost)));
  first->signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return !alive(rank); }));
  variables["OARLOCK_REPLACEMENT"] = "1";
  const std::unique_ptr<Program> second = start_node(lost);
  EXPECT_EQ(second->wait(), 0) << second->err();
  EXPECT_EQ(survivor->wait(), 0) << survivor->err();
  const std::string donor = " of 2, donor " + std::to_string(1 - lost) + ", step 5\n";
  EXPECT_EQ(second->out(), "rank " + std::to_string(lost) + donor);
  EXPECT_EQ(survivor->out(), "rank " + std::to_string(1 - lost) + donor);
}

// The ranks of the other node neither detect the loss nor regroup.
TEST_P(ReplacedNode, RestartsAnyProgramOfAllNodes) {
  const int lost = GetParam();
  std::map<std::string, std::string> variables = {{"OARLOCK_REGROUP_TOKEN", "secret"},
                                                  {"OARLOCK_MAX_RESTARTS", "1"},
                                                  {"OARLOCK_RESTART_POLICY", "group"},
                                                  {"OARLOCK_JOB", "j"},
                                                  {"OARLOCK_RESTART_BACKOFF", "0"}};
  const std::vector<std::string> command = {
      "/bin/bash", "-c",
      "echo $$ > pid.$RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && { echo rank $RANK; exit; }; sleep 1000 & wait"};
  const auto start_node = [&](int node) {
    return std::unique_ptr<Program>(new Program(start(node, {"--nproc", "1"}, command, variables)));
  };
  const std::unique_ptr<Program> survivor = start_node(1 - lost);
  const std::unique_ptr<Program> first = start_node(lost);
  ASSERT_GT(number_in(directory_.path() / "pid.0"), 0) << survivor->err() << first->err();
  ASSERT_GT(number_in(directory_.path() / "pid.1"), 0) << survivor->err() << first->err();
  const int rank = number_in(directory_.path() / ("pid." + std::to_string(lost)));
  first->signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return !alive(rank); }));
  variables["OARLOCK_REPLACEMENT"] = "1";
  const std::unique_ptr<Program> second = start_node(lost);
  EXPECT_EQ(second->wait(), 0) << second->err();
  EXPECT_EQ(survivor->wait(), 0) << survivor->err();
  EXPECT_EQ(second->out(), fmt::format("rank {}\n", lost));
  EXPECT_EQ(survivor->out(), fmt::format("rank {}\n", 1 - lost));
}

INSTANTIATE_TEST_SUITE_P(All, ReplacedNode, testing::Values(0, 1));

// A rank that leaves the group when the file `lost` exists, and finishes in a group of one rank when `finish` exists.
constexpr char kSurvivor[] = R"(
import json, os, socket, time
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
channel = socket.socket(fileno=int(os.environ["OARLOCK_REGROUP_FD"]))
lines = channel.makefile("r")
def regroup(generation, step):
    request = {"generation": generation, "step": step, "digest": "", "reason": "test"}
    channel.sendall((json.dumps(request) + "\n").encode())
    for line in lines:
        command = json.loads(line)
        if command["kind"] == "assign" and command["generation"] > generation:
            return command
group = regroup(-1, -1)
with open(f"pid.{os.environ['RANK']}", "w") as file:
    file.write(f"{os.getpid()}\n")
wait_for("lost")
while group["worldSize"] > 1:
    group = regroup(group["generation"], 5)
wait_for("finish")
print(f"rank {group['rank']} of {group['worldSize']}, donor {group['donor']}, step {group['step']}", flush=True)
)";

// A rank whose state has ten steps more in each group. It leaves its group when it is requested to, and finishes when
// the file `finish` exists. Rank 0 keeps the newest generation in the file `fence`, as in a checkpoint directory.
constexpr char kMember[] = R"(
import json, os, select, socket, sys
rank = os.environ["RANK"]
channel = socket.socket(fileno=int(os.environ["OARLOCK_REGROUP_FD"]))
lines = channel.makefile("rb", buffering=0)
def next_command():
    line = lines.readline()
    return json.loads(line) if line else sys.exit(1)
def regroup(generation, step):
    request = {"generation": generation, "step": step, "digest": "", "reason": "test"}
    if rank == "0" and generation < 0 and os.path.exists("fence"):
        request["fence"] = int(open("fence").read())
    channel.sendall((json.dumps(request) + "\n").encode())
    while True:
        command = next_command()
        if command["kind"] == "end":
            sys.exit(76)
        if command["kind"] == "assign" and command["generation"] > generation:
            break
    if rank == "0":
        with open("fence.new", "w") as file:
            file.write(str(command["generation"]))
        os.rename("fence.new", "fence")
    print(f"generation {command['generation']} from step {command['step']}", flush=True)
    return command["generation"]
generation = regroup(-1, -1)
while not os.path.exists("finish"):
    if not select.select([channel], [], [], 0.01)[0]:
        continue
    command = next_command()
    if command["kind"] == "end":
        sys.exit(76)
    if command["kind"] == "leave" and command["generation"] == generation:
        generation = regroup(generation, 10 * (generation + 1))
)";

// A launcher and its successor, as after the pod of a node that is cut off was deleted by force.
class ReplacedLauncher : public TwoNodes {
 protected:
  std::unique_ptr<Program> start_member(int node, bool is_replacement) {
    std::map<std::string, std::string> variables = {{"OARLOCK_REGROUP_TOKEN", "secret"},
                                                    {"OARLOCK_TERMINATION_LOG", "message." + std::to_string(node)}};
    if (is_replacement) variables["OARLOCK_REPLACEMENT"] = "1";
    const std::vector<std::string> options = {"--nproc", "1", "--max-restarts", "9", "--restart-policy", "rank"};
    return std::unique_ptr<Program>(new Program(start(node, options, {"python3", "-c", kMember}, variables)));
  }
  static bool has_printed(const Program& program, const std::string& line) {
    return eventually([&] { return program.out().find(line) != std::string::npos || !alive(program.pid()); }) &&
           program.out().find(line) != std::string::npos;
  }
  void expect_replaced(Program& program) const {
    EXPECT_EQ(program.wait(), 76) << program.err();
    EXPECT_THAT(program.err(), HasSubstr("another launcher has taken the place of this one"));
    EXPECT_THAT(content(directory_.path() / "message.1"), HasSubstr(R"("reason":"Disconnected")"));
  }
};

TEST_F(ReplacedLauncher, EndsWhenItsSuccessorConnects) {
  const auto first = start_member(0, false);
  const auto old = start_member(1, false);
  ASSERT_TRUE(has_printed(*old, "generation 0 from step -1")) << old->err();
  const auto successor = start_member(1, true);
  expect_replaced(*old);
  EXPECT_TRUE(has_printed(*successor, "generation 1 from step 10")) << successor->err();
  std::ofstream(directory_.path() / "finish").flush();
  EXPECT_EQ(first->wait(), 0) << first->err();
  EXPECT_EQ(successor->wait(), 0) << successor->err();
}

// The coordinator that knew it is replaced, too, and its successor cannot be reached.
TEST_F(ReplacedLauncher, DoesNotReturnToANewCoordinator) {
  auto first = start_member(0, false);
  const auto old = start_member(1, false);
  ASSERT_TRUE(has_printed(*old, "generation 0 from step -1")) << old->err();
  old->signal(SIGSTOP);
  const auto successor = start_member(1, true);
  ASSERT_TRUE(has_printed(*first, "generation 1 from step 10")) << first->err();
  ASSERT_TRUE(has_printed(*successor, "generation 1 from step 10")) << successor->err();
  successor->signal(SIGSTOP);
  first->signal(SIGKILL);
  first->wait();
  old->signal(SIGCONT);
  first = start_member(0, true);
  expect_replaced(*old);
  successor->signal(SIGCONT);
  EXPECT_TRUE(has_printed(*first, "generation 2 from step 20")) << first->err();
  EXPECT_EQ(first->out(), "generation 2 from step 20\n");
  std::ofstream(directory_.path() / "finish").flush();
  EXPECT_EQ(first->wait(), 0) << first->err();
  EXPECT_EQ(successor->wait(), 0) << successor->err();
}

// The ranks of the node that comes back are not ready when the others have finished.
TEST_F(TwoNodes, NodeThatIsNotInTheGroupEndsWithIt) {
  const std::vector<std::string> options = {"--nproc",     "1", "--max-restarts", "1", "--restart-policy", "rank",
                                            "--min-nodes", "1", "--shrink-after", "2"};
  const std::vector<std::string> survivor = {"python3", "-c", kSurvivor};
  Program first = start(0, options, survivor, "secret");
  {
    Program second = start(1, options, survivor, "secret");
    for (const char* name : {"pid.0", "pid.1"}) ASSERT_GT(number_in(directory_.path() / name), 0) << first.err();
    second.signal(SIGKILL);
    second.wait();
  }
  std::ofstream(directory_.path() / "lost").flush();
  ASSERT_TRUE(eventually([&] { return first.err().find("continues with 1 of 2 nodes") != std::string::npos; }))
      << first.err();
  Program third = start(1, options, {"/bin/bash", "-c", "exec sleep 1000"}, "secret");
  ASSERT_TRUE(eventually([&] { return third.err().find("joins it when its ranks are ready") != std::string::npos; }))
      << third.err();
  std::ofstream(directory_.path() / "finish").flush();
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(third.wait(), 0) << third.err();
  EXPECT_EQ(first.out(), "rank 0 of 1, donor 0, step 5\n");
  EXPECT_THAT(third.err(), HasSubstr("the group has finished without this node"));
}

// The environment is that of the pods of such a job with spec.elastic.
TEST_F(TwoNodes, OperatorsVariablesSetTheSmallestGroup) {
  const std::map<std::string, std::string> variables = {{"OARLOCK_REGROUP_TOKEN", "secret"},
                                                        {"OARLOCK_MAX_RESTARTS", "1"},
                                                        {"OARLOCK_RESTART_POLICY", "rank"},
                                                        {"OARLOCK_MIN_NODES", "1"},
                                                        {"OARLOCK_SHRINK_AFTER", "2"}};
  const std::vector<std::string> survivor = {"python3", "-c", kSurvivor};
  Program first = start(0, {"--nproc", "1"}, survivor, variables);
  {
    Program second = start(1, {"--nproc", "1"}, survivor, variables);
    for (const char* name : {"pid.0", "pid.1"}) ASSERT_GT(number_in(directory_.path() / name), 0) << first.err();
    second.signal(SIGKILL);
    second.wait();
  }
  for (const char* name : {"lost", "finish"}) std::ofstream(directory_.path() / name).flush();
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(first.out(), "rank 0 of 1, donor 0, step 5\n");
  EXPECT_THAT(first.err(), HasSubstr("continues with 1 of 2 nodes"));

  const std::vector<std::string> print = {"/bin/bash", "-c", "env | grep -Ec '^OARLOCK_(MIN|SHRINK)' || true"};
  Program alone(launch({"--nproc", "1", "--no-prefix"}, print), {.environment = variables});
  EXPECT_EQ(alone.wait(), 0) << alone.err();
  EXPECT_EQ(alone.out(), "0\n") << "the ranks do not receive them";
}

// The operator replaces the pod of such a launcher, while the others continue.
TEST_F(TwoNodes, LauncherWithoutLeaseNamesItsReason) {
  const std::vector<std::string> options = {"--nproc",     "1", "--max-restarts", "1", "--restart-policy", "rank",
                                            "--min-nodes", "1", "--shrink-after", "2"};
  const std::vector<std::string> survivor = {"python3", "-c", kSurvivor};
  Program first = start(0, options, survivor, "secret");
  Program second = start(1, options, survivor,
                         std::map<std::string, std::string>{{"OARLOCK_REGROUP_TOKEN", "secret"},
                                                            {"OARLOCK_TERMINATION_LOG", "message.json"}});
  for (const char* name : {"pid.0", "pid.1"}) ASSERT_GT(number_in(directory_.path() / name), 0) << first.err();
  first.signal(SIGSTOP);
  EXPECT_EQ(second.wait(), 76) << second.err();
  EXPECT_THAT(content(directory_.path() / "message.json"),
              AllOf(HasSubstr(R"("reason":"Disconnected")"), HasSubstr("has not answered for 1.8 s")));
  first.signal(SIGCONT);
  for (const char* name : {"lost", "finish"}) std::ofstream(directory_.path() / name).flush();
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(first.out(), "rank 0 of 1, donor 0, step 5\n");
}

// As a node without power, a launcher that is stopped does not close its connection.
TEST_F(TwoNodes, SilentLauncherIsLeftOut) {
  const std::vector<std::string> options = {"--nproc",     "1", "--max-restarts", "1", "--restart-policy", "rank",
                                            "--min-nodes", "1", "--shrink-after", "2"};
  const std::vector<std::string> survivor = {"python3", "-c", kSurvivor};
  Program first = start(0, options, survivor, "secret");
  Program second = start(1, options, survivor, "secret");
  for (const char* name : {"pid.0", "pid.1"}) ASSERT_GT(number_in(directory_.path() / name), 0) << first.err();
  second.signal(SIGSTOP);
  for (const char* name : {"lost", "finish"}) std::ofstream(directory_.path() / name).flush();
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(first.out(), "rank 0 of 1, donor 0, step 5\n");
  second.signal(SIGCONT);
  EXPECT_EQ(second.wait(), 76) << second.err();
  EXPECT_THAT(second.err(), HasSubstr("has not answered for 1.8 s"));
}

TEST_F(TwoNodes, OptionsReplaceTheVariablesOfTheSmallestGroup) {
  struct Case {
    std::vector<std::string> options;
    std::string min_nodes;
    int exit_code;
    std::string message{};
  };
  const std::vector<std::string> longer = {"--shrink-after", "400", "--rejoin-timeout", "300"};
  const std::vector<Case> cases = {
      {.options = {"--min-nodes", "3"}, .min_nodes = "1", .exit_code = 64, .message = "--min-nodes 3 is more than"},
      {.options = {"--min-nodes", "1", longer[0], longer[1], longer[2], longer[3]},
       .min_nodes = "1",
       .exit_code = 64,
       .message = "--shrink-after 400 must be less than --rejoin-timeout 300"},
      {.options = {}, .min_nodes = "one", .exit_code = 78, .message = "OARLOCK_MIN_NODES='one' is not a number"},
      {.options = {"--max-restarts", "0"}, .min_nodes = "1", .exit_code = 0},
  };
  for (const Case& one : cases) {
    Program program = start(0, one.options, {"/bin/true"},
                            {{"OARLOCK_REGROUP_TOKEN", "secret"},
                             {"OARLOCK_MAX_RESTARTS", "1"},
                             {"OARLOCK_RESTART_POLICY", "rank"},
                             {"OARLOCK_MIN_NODES", one.min_nodes},
                             {"OARLOCK_SHRINK_AFTER", "2"}});
    EXPECT_EQ(program.wait(), one.exit_code) << program.err();
    EXPECT_THAT(program.err(), HasSubstr(one.message));
  }
}

TEST_F(TwoNodes, MinNodesNeedsRecoveryByRank) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--min-nodes", "1"}, "--min-nodes needs --max-restarts"},
      {{"--min-nodes", "1", "--max-restarts", "1"}, "--min-nodes needs --restart-policy rank"},
      {{"--min-nodes", "3", "--max-restarts", "1", "--restart-policy", "rank"}, "is more than --nnodes 2"},
      {{"--min-nodes", "1", "--max-restarts", "1", "--restart-policy", "rank", "--shrink-after", "300"},
       "must be less than --rejoin-timeout 300"}};
  for (const auto& [options, message] : cases) {
    Program refused = start(0, options, {"/bin/true"}, "secret");
    EXPECT_EQ(refused.wait(), 64);
    EXPECT_THAT(refused.err(), HasSubstr(message));
  }
}

TEST_F(TwoNodes, GroupRestartsOnBothNodes) {
  const std::vector<std::string> options = {"--nproc", "2", "--max-restarts", "1"};
  const std::vector<std::string> command = {
      "/bin/bash", "-c",
      "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then echo $RANK; exit; fi; [ $RANK = 3 ] && exit 1; sleep 1000 & wait"};
  Program first = start(0, options, command, "secret");
  Program second = start(1, options, command, "secret");
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(lines(first.out()), UnorderedElementsAre("0", "1"));
  EXPECT_THAT(lines(second.out()), UnorderedElementsAre("2", "3"));
}

TEST_F(TwoNodes, FailureOfTheOtherNodeIsCollateral) {
  const std::vector<std::string> options = {"--nproc", "1", "--max-restarts", "1", "--grace", "5"};
  const std::vector<std::string> command = {"/bin/bash", "-c", "[ $RANK = 1 ] && exit 65; sleep 1000 & wait"};
  Program first = start(0, options, command, "secret");
  Program second = start(1, options, command, "secret");
  EXPECT_EQ(second.wait(), 65) << second.err();
  EXPECT_EQ(first.wait(), 76) << first.err();
}

// The other launcher does not wait for the time-out of a group that cannot be complete any more.
TEST_F(TwoNodes, StoppedLauncherEndsTheOtherOne) {
  const std::vector<std::string> options = {"--nproc", "1", "--max-restarts", "3"};
  for (const int stopped : {0, 1}) {
    for (const char* name : {"pid.0", "pid.1"}) fs::remove(directory_.path() / name);
    const std::vector<std::string> command = {"/bin/bash", "-c", "echo $$ > pid.$RANK; exec sleep 1000"};
    Program first = start(0, options, command, "secret");
    Program second = start(1, options, command, "secret");
    for (const char* name : {"pid.0", "pid.1"}) ASSERT_GT(number_in(directory_.path() / name), 0);
    (stopped == 0 ? first : second).signal(SIGTERM);
    EXPECT_EQ((stopped == 0 ? first : second).wait(), 128 + SIGTERM);
    EXPECT_EQ((stopped == 0 ? second : first).wait(), 76);
    EXPECT_THAT((stopped == 0 ? second : first).err(),
                HasSubstr(fmt::format("node rank {} was requested to stop", stopped)));
  }
}

TEST_F(TwoNodes, LauncherThatCannotStartItsRanksEndsTheOtherOne) {
  const std::vector<std::string> options = {"--nproc", "1", "--max-restarts", "3"};
  Program first = start(0, options, {"/bin/bash", "-c", "exec sleep 1000"}, "secret");
  Program second = start(1, options, {"./not-there"}, "secret");
  EXPECT_EQ(second.wait(), 66) << second.err();
  EXPECT_EQ(first.wait(), 76) << first.err();
}

TEST_F(TwoNodes, WrongTokenIsRejected) {
  const std::vector<std::string> options = {"--nproc", "1", "--max-restarts", "1", "--rejoin-timeout", "2"};
  const std::vector<std::string> command = {"/bin/bash", "-c", "echo started"};
  Program first = start(0, options, command, "secret");
  Program second = start(1, options, command, "guess");
  EXPECT_NE(second.wait(), 0);
  EXPECT_THAT(second.err(), AllOf(HasSubstr("does not accept the value of OARLOCK_REGROUP_TOKEN; set the same one on"),
                                  Not(HasSubstr("no connection"))));
  EXPECT_NE(first.wait(), 0);
  EXPECT_EQ(first.out() + second.out(), "");
}

TEST_F(TwoNodes, MissingTokenIsReported) {
  Program first = start(0, {"--max-restarts", "1"}, {"/bin/true"}, "");
  EXPECT_EQ(first.wait(), 78);
  EXPECT_THAT(first.err(), HasSubstr("OARLOCK_REGROUP_TOKEN"));
}

}  // namespace
}  // namespace oarlock::test
