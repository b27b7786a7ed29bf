// oarlock run with real processes and the real rules, without a trainer: the container's command is a shell script.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "common/contract.h"
#include "tests/support/program.h"

namespace oarlock::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Job {
  int nodes = 2;
  int per_node = 1;
  int max_restarts = 3;
  int backoff = 0;     // seconds
  std::string script;  // of the container's command
  std::string trainer = "{task: x}";
};

void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

std::string yaml(const Job& job) {
  std::string indented;
  for (const std::string& line : lines(job.script)) indented += "              " + line + "\n";
  return fmt::format(R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {{name: j}}
spec:
  nodes: {}
  processesPerNode: {}
  failurePolicy: {{maxRestarts: {}, backoffSeconds: {}}}
  trainer: {}
  template:
    spec:
      volumes: [{{name: checkpoints, emptyDir: {{}}}}]
      containers:
        - name: trainer
          image: any
          volumeMounts: [{{name: checkpoints, mountPath: /ckpt}}]
          command:
            - bash
            - -c
            - |
{})",
                     job.nodes, job.per_node, job.max_restarts, job.backoff, job.trainer, indented);
}

// A directory with job.yaml in it, and the program that runs it.
class RunTest : public testing::Test {
 protected:
  void job(const Job& job) { write(directory_.path() / "job.yaml", yaml(job)); }
  std::unique_ptr<Program> start(std::vector<std::string> options = {}) {
    std::vector<std::string> argv = {oarlock(), "run", "-f", "job.yaml"};
    argv.insert(argv.end(), options.begin(), options.end());
    return std::make_unique<Program>(argv, ProgramOptions{.environment = {}, .directory = directory_.path()});
  }
  fs::path file(const std::string& name) const { return directory_.path() / name; }
  std::string text(const std::string& name) const { return content(file(name)); }

  TemporaryDirectory directory_;
};

TEST_F(RunTest, RunsEveryRankAndPrintsSummary) {
  job({.nodes = 2,
       .script = "echo rank $RANK of $WORLD_SIZE\nmkdir -p $OARLOCK_CHECKPOINT_DIR/step-3\nprintf "
                 "'{\"rank\":0,\"step\":3,\"checkpointStep\":3,\"reason\":\"Completed\",\"message\":\"done\"}' > "
                 "$OARLOCK_TERMINATION_LOG"});
  const auto run = start();
  EXPECT_EQ(run->wait(), 0) << run->err();
  EXPECT_THAT(lines(run->out()), testing::UnorderedElementsAre("[RANK 0] rank 0 of 2", "[RANK 1] rank 1 of 2"));
  EXPECT_THAT(run->err(), HasSubstr("j: attempt 0, 2 nodes of 1 rank\n")) << "this program serves no metrics";
  EXPECT_THAT(run->err(), HasSubstr("j: Complete after "));
  EXPECT_THAT(run->err(), HasSubstr("step 3, newest checkpoint at step 3"));
  EXPECT_THAT(run->err(), HasSubstr("checkpoints: " + file("oarlock-runs/j/checkpoints").string() + "\n"));
}

TEST_F(RunTest, RestartsTheWholeGroupUntilItSucceeds) {
  job({.nodes = 2,
       .script = "echo $RANK >> ranks.$OARLOCK_ATTEMPT\n[ $OARLOCK_ATTEMPT = 0 ] && [ $RANK = 1 ] && until [ $(wc -l < "
                 "ranks.0) = 2 ]; do :; done && exit 9\n[ "
                 "$OARLOCK_ATTEMPT = 0 ] && exec sleep 1000\n:"});
  const auto run = start();
  EXPECT_EQ(run->wait(), 0) << run->err();
  EXPECT_EQ(lines(text("ranks.0")).size(), 2u);
  EXPECT_EQ(lines(text("ranks.1")).size(), 2u);
  EXPECT_FALSE(fs::exists(file("ranks.2")));
  EXPECT_THAT(run->err(), HasSubstr("rank 1 ended with exit code 9; all ranks start again, restart 1 of 3"));
  EXPECT_THAT(run->err(), AllOf(HasSubstr("Complete after"), HasSubstr(", 1 restart\n")));
}

TEST_F(RunTest, GivesUpAfterMaxRestarts) {
  job({.nodes = 1, .max_restarts = 2, .script = "echo $OARLOCK_ATTEMPT >> attempts; exit $((9 + OARLOCK_ATTEMPT))"});
  const auto run = start();
  EXPECT_EQ(run->wait(), 11);
  EXPECT_EQ(text("attempts"), "0\n1\n2\n");
  EXPECT_THAT(run->err(), AllOf(HasSubstr("2 of 2 restarts are used up"), HasSubstr("j: Failed after")));
}

TEST_F(RunTest, RepeatedEarlyFailureFailsTheJob) {
  // The ranks fail in the same way, and each of them is the first one in one of the attempts.
  job({.nodes = 2,
       .script = "echo $RANK >> starts.$OARLOCK_ATTEMPT\n[ $RANK = $OARLOCK_ATTEMPT ] || exec sleep 1000\n"
                 "until [ $(wc -l < starts.$OARLOCK_ATTEMPT) = 2 ]; do :; done\n"
                 "echo 'train.py: error: unrecognized arguments: --dta' >&2; exit 2"});
  const auto run = start();
  EXPECT_EQ(run->wait(), 2) << run->err();
  EXPECT_THAT(run->err(), AllOf(HasSubstr("rank 0 ended with exit code 2; all ranks start again, restart 1 of 3"),
                                HasSubstr("rank 1 ended with exit code 2 again within 30 s of its start"),
                                HasSubstr("its last line: train.py: error: unrecognized arguments: --dta\n"),
                                HasSubstr("j: Failed after")));
  EXPECT_FALSE(fs::exists(file("starts.2")));
}

TEST_F(RunTest, ProgressKeepsTheRestarts) {
  job({.nodes = 1,
       .max_restarts = 2,
       .script = "echo $OARLOCK_ATTEMPT >> attempts; mkdir -p $OARLOCK_CHECKPOINT_DIR\n"
                 "touch $OARLOCK_CHECKPOINT_DIR/$OARLOCK_ATTEMPT.pt; exit 9"});
  const auto run = start();
  EXPECT_EQ(run->wait(), 9);
  EXPECT_EQ(text("attempts"), "0\n1\n2\n");
}

// Up to maxTotalRestarts, which is ten times maxRestarts.
TEST_F(RunTest, RestartsAfterNewCheckpointsAreNotCharged) {
  job({.nodes = 1,
       .max_restarts = 1,
       .script = "echo $OARLOCK_ATTEMPT >> attempts; mkdir -p $OARLOCK_CHECKPOINT_DIR/step-0000000$OARLOCK_ATTEMPT\n"
                 "exit 137"});
  const auto run = start();
  EXPECT_EQ(run->wait(), 137) << run->err();
  EXPECT_THAT(text("attempts"), ::testing::EndsWith("\n10\n"));
  EXPECT_THAT(run->err(),
              AllOf(HasSubstr("restart 1 of 1"), HasSubstr("all ranks start again, not counted after progress"),
                    HasSubstr("10 of 10 restarts are used up, those after progress included")));
}

TEST_F(RunTest, WaitsBeforeTheSecondQuickRestart) {
  job({.nodes = 1, .max_restarts = 2, .backoff = 1, .script = "kill -KILL $BASHPID"});
  const auto run = start();
  EXPECT_EQ(run->wait(), 137) << run->err();
  EXPECT_THAT(run->err(), AllOf(HasSubstr("all ranks start again, restart 1 of 2"),
                                HasSubstr("all ranks start again in 1 s, restart 2 of 2")));
  EXPECT_THAT(run->err(), HasSubstr("to start again, after the error is fixed: oarlock run job.yaml\n"));
}

TEST_F(RunTest, InterruptEndsTheWaitForARestart) {
  job({.nodes = 1, .max_restarts = 9, .backoff = 600, .script = "echo x >> starts; kill -KILL $BASHPID"});
  const auto run = start();
  ASSERT_TRUE(eventually([&] { return run->err().find("in 600 s") != std::string::npos; })) << run->err();
  run->signal(SIGINT);
  EXPECT_EQ(run->wait(), 137) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("j: Interrupted after"));
  EXPECT_EQ(text("starts"), "x\nx\n");
}

TEST_F(RunTest, WritesFilesOfConfigMaps) {
  job({.nodes = 1, .script = "cat /script/greeting; cat $GREETING"});
  std::string with_volume = text("job.yaml");
  const std::string mount = "volumeMounts: [{name: checkpoints, mountPath: /ckpt}";
  with_volume.replace(with_volume.find(mount), mount.size(),
                      "env: [{name: GREETING, value: /script/greeting}]\n"
                      "          volumeMounts: [{name: checkpoints, mountPath: /ckpt}, {name: s, mountPath: /script}");
  const std::string volume = "volumes: [";
  with_volume.insert(with_volume.find(volume) + volume.size(), "{name: s, configMap: {name: scripts}}, ");
  write(file("job.yaml"), with_volume +
                              "---\napiVersion: v1\n"
                              "kind: ConfigMap\nmetadata: {name: scripts}\ndata: {greeting: \"hello\\n\"}\n");
  const auto run = start();
  EXPECT_EQ(run->wait(), 0) << run->err();
  EXPECT_EQ(run->out(), "hello\nhello\n");
  EXPECT_THAT(run->err(),
              HasSubstr("the volume 's' (/script) is " + file("oarlock-runs/j/volumes/s").string() + " here"));
}

TEST_F(RunTest, PrefixesAndLogFilesFollowTheOptions) {
  job({.nodes = 2, .script = "echo out $RANK; echo err $RANK >&2"});
  const auto run = start({"--no-prefix", "--log-dir", "logs"});
  EXPECT_EQ(run->wait(), 0) << run->err();
  EXPECT_THAT(lines(run->out()), testing::UnorderedElementsAre("out 0", "out 1"));
  EXPECT_EQ(text("logs/attempt_0/rank_1/stdout.log"), "out 1\n");
  EXPECT_EQ(text("logs/attempt_0/rank_0/stderr.log"), "err 0\n");
}

TEST_F(RunTest, PermanentCodesFailWithMessageOfTheRank) {
  job({.nodes = 2,
       .script = "echo $OARLOCK_ATTEMPT >> attempts\n[ $RANK = 0 ] && until [ -e ready ]; do :; done && exit 76\n"
                 "until [ $(wc -l < attempts) = 2 ]; do :; done\nprintf "
                 "'{\"rank\":1,\"step\":0,\"checkpointStep\":-1,\"reason\":\"DataInvalid\",\"message\":\"x.gz is cut "
                 "short\"}' > $OARLOCK_TERMINATION_LOG\ntouch ready\nexit 65"});
  const auto run = start();
  EXPECT_EQ(run->wait(), 65);
  EXPECT_EQ(lines(text("attempts")), (std::vector<std::string>{"0", "0"}));
  EXPECT_THAT(run->err(),
              HasSubstr("rank 1 ended with exit code 65 (DataInvalid: x.gz is cut short): a restart would fail again"));
}

TEST_F(RunTest, KilledRankCostsOneRestart) {
  job({.nodes = 2,
       .script = "echo $BASHPID > pid.$RANK.$OARLOCK_ATTEMPT\n[ $OARLOCK_ATTEMPT = 1 ] && exit 0\nexec sleep 1000"});
  const auto run = start();
  ASSERT_GT(number_in(file("pid.0.0")), 0);
  ::kill(number_in(file("pid.1.0")), SIGKILL);
  EXPECT_EQ(run->wait(), 0) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("rank 1 ended with signal 9 (SIGKILL); all ranks start again"));
}

TEST_F(RunTest, InterruptStopsGracefullyAndDoesNotRestart) {
  job({.nodes = 2,
       .script = "trap 'kill $!; exit 75' INT\nsleep 1000 &\necho x >> starts\necho $BASHPID > ready.$RANK\nwait"});
  const auto run = start();
  const int first = number_in(file("ready.0"));
  const int second = number_in(file("ready.1"));
  run->signal(SIGINT);
  EXPECT_EQ(run->wait(), 75) << run->err();
  EXPECT_FALSE(alive(first));
  EXPECT_FALSE(alive(second));
  EXPECT_EQ(lines(text("starts")).size(), 2u);
  EXPECT_THAT(run->err(),
              AllOf(HasSubstr("j: Interrupted after"), HasSubstr("to start again: oarlock run job.yaml\n")));
}

// As Lightning does.
TEST_F(RunTest, ExitWithZeroAfterTheSignalIsAnInterruption) {
  job({.nodes = 2, .script = "trap 'kill $!; exit 0' TERM\nsleep 1000 &\necho $BASHPID > ready.$RANK\nwait"});
  const auto run = start();
  number_in(file("ready.0"));
  number_in(file("ready.1"));
  run->signal(SIGTERM);
  EXPECT_EQ(run->wait(), 75) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("j: Interrupted after"));
}

// With --fresh, the same command would start over.
TEST_F(RunTest, InterruptOfFreshRunNamesCommandThatResumes) {
  job({.nodes = 1,
       .script = "mkdir -p \"$OARLOCK_CHECKPOINT_DIR/step-3\"\ntrap 'kill $!; exit 75' INT\nsleep 1000 &\n"
                 "echo $BASHPID > ready.$NODE_RANK\nwait"});
  const auto run = start({"--fresh", "--nproc", "1", "--workdir", "my runs"});
  number_in(file("ready.0"));
  run->signal(SIGINT);
  EXPECT_EQ(run->wait(), 75) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("to resume from there: oarlock run job.yaml --workdir 'my runs' --nproc 1\n"));
}

TEST_F(RunTest, SecondRunContinuesAttemptsAndFreshStartsOver) {
  job({.nodes = 1,
       .script = "echo $OARLOCK_ATTEMPT $OARLOCK_UID >> seen\nmkdir -p $OARLOCK_CHECKPOINT_DIR\ntouch "
                 "$OARLOCK_CHECKPOINT_DIR/saved"});
  EXPECT_EQ(start()->wait(), 0);
  const auto second = start();
  EXPECT_EQ(second->wait(), 0);
  EXPECT_THAT(second->err(), HasSubstr("has earlier runs; this one resumes from their checkpoints"));
  const auto fresh = start({"--fresh"});
  EXPECT_EQ(fresh->wait(), 0);
  EXPECT_THAT(fresh->err(), HasSubstr("the earlier run is now in " + file("oarlock-runs/j.").string()));
  const std::vector<std::string> seen = lines(text("seen"));
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].substr(0, 2), "0 ");
  EXPECT_EQ(seen[1], "1 " + seen[0].substr(2));
  EXPECT_EQ(seen[2].substr(0, 2), "0 ");
  EXPECT_NE(seen[2].substr(2), seen[0].substr(2));
  int moved = 0;
  for (const auto& entry : fs::directory_iterator(file("oarlock-runs"))) {
    if (entry.path().filename() != "j") moved += fs::exists(entry.path() / "checkpoints" / "saved") ? 1 : 0;
  }
  EXPECT_EQ(moved, 1);
}

TEST_F(RunTest, FlagsOverrideTheFile) {
  job({.nodes = 2, .script = "echo $WORLD_SIZE $LOCAL_WORLD_SIZE ${RANK-none} $MASTER_PORT"});
  const auto run = start({"--nodes", "1", "--nproc", "3", "--master-port", "4321", "--workdir", "elsewhere"});
  EXPECT_EQ(run->wait(), 0) << run->err();
  EXPECT_THAT(lines(run->out()), ElementsAre("3 3 none 4321"));
  EXPECT_TRUE(fs::exists(file("elsewhere/j/run.json")));
  EXPECT_FALSE(fs::exists(file("oarlock-runs")));
  EXPECT_EQ(start({"--nodes", "0"})->wait(), 64);
}

TEST_F(RunTest, SettingsAreForTheTrainerOnly) {
  job({.script = "true"});
  const auto run = start({"epochs=3"});
  EXPECT_EQ(run->wait(), 64);
  EXPECT_THAT(lines(run->err()),
              ElementsAre(HasSubstr("'epochs=3' is a setting for oarlock-trainer, but this job has its own command")));
}

TEST_F(RunTest, PassesUsersFileIfItHoldsOneJob) {
  job({.nodes = 1, .script = "echo $OARLOCK_CONFIG; cat $OARLOCK_CONFIG > config"});
  EXPECT_EQ(start()->wait(), 0);
  EXPECT_EQ(text("config"), text("job.yaml"));
  std::string two = text("job.yaml");
  std::string other = two;
  other.replace(other.find("name: j}"), 8, "name: k}");
  write(file("job.yaml"), two + "---\n" + other + "---\napiVersion: v1\nkind: ConfigMap\n");
  const auto ambiguous = start();
  EXPECT_EQ(ambiguous->wait(), 64);
  EXPECT_THAT(ambiguous->err(), HasSubstr("choose one with --name: j, k"));
  EXPECT_EQ(start({"--name", "k"})->wait(), 0);
  EXPECT_EQ(nlohmann::json::parse(text("config")), (nlohmann::json{{"task", "x"}}));
}

TEST_F(RunTest, ReportsAllProblemsOfTheFile) {
  std::string bad = yaml({.script = ":"});
  bad.replace(bad.find("  nodes:"), 8, "  nodse:");
  bad.replace(bad.find("maxRestarts: 3"), 14, "maxRestarts: x");
  write(file("job.yaml"), bad);
  const auto run = start();
  EXPECT_EQ(run->wait(), 78);
  const std::vector<std::string> problems = lines(run->err());
  EXPECT_THAT(problems,
              Contains(AllOf(HasSubstr("job.yaml:5:3: "), HasSubstr("nodse"), HasSubstr("did you mean 'nodes'?"))));
  EXPECT_THAT(problems, Contains(HasSubstr("job.yaml:7:32: ")));
  EXPECT_EQ(problems.size(), 2u);
  EXPECT_FALSE(fs::exists(file("oarlock-runs"))) << "a bad file must leave nothing behind";
}

TEST_F(RunTest, MissingFileAndOtherKinds) {
  Program missing({oarlock(), "run", "-f", "/no/such/job.yaml"});
  EXPECT_EQ(missing.wait(), 66);
  EXPECT_THAT(lines(missing.err()), ElementsAre(HasSubstr("/no/such/job.yaml")));
  write(file("job.yaml"), "apiVersion: v1\nkind: ConfigMap\n");
  const auto other = start();
  EXPECT_EQ(other->wait(), 78);
  EXPECT_THAT(lines(other->err()), ElementsAre(HasSubstr("there is no TrainingJob")));
  write(file("job.yaml"), "apiVersion: oarlock.dev/v1alpha1\nkind: TraningJob\n");
  const auto typo = start();
  EXPECT_EQ(typo->wait(), 78);
  EXPECT_THAT(typo->err(), HasSubstr("TraningJob"));
}

TEST_F(RunTest, ReportsMissingProgramOnce) {
  write(file("job.yaml"),
        "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec:\n  nodes: 2\n  template: "
        "{spec: {containers: [{name: trainer, command: [no-such-program]}]}}\n");
  const auto run = start();
  EXPECT_EQ(run->wait(), 66);
  EXPECT_THAT(run->err(), HasSubstr("'no-such-program' is not in PATH"));
}

TEST_F(RunTest, FindsMissingProgramBeforeFreshRenames) {
  job({.nodes = 1, .script = ":"});
  ASSERT_EQ(start()->wait(), 0);
  std::string gone = text("job.yaml");
  gone.replace(gone.find("- bash"), 6, "- no-such-program");
  write(file("job.yaml"), gone);
  EXPECT_EQ(start({"--fresh"})->wait(), 66);
  EXPECT_TRUE(fs::exists(file("oarlock-runs/j/run.json")));
  const fs::directory_iterator runs(file("oarlock-runs"));
  EXPECT_EQ(std::distance(begin(runs), end(runs)), 1);
}

TEST_F(RunTest, ReportsMissingTrainerOnce) {
  // A copy of oarlock alone, with no trainer next to it.
  write(file("job.yaml"),
        "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec:\n  nodes: 2\n  trainer: "
        "{task: x}\n  template: {spec: {containers: [{name: trainer, image: x}]}}\n");
  fs::copy_file(oarlock(), file("oarlock"));
  Program run({file("oarlock").string(), "run", "-f", "job.yaml"},
              {.environment = {{"PATH", "/usr/bin:/bin"}}, .directory = directory_.path()});
  EXPECT_EQ(run.wait(), 69);
  EXPECT_THAT(run.err(), HasSubstr("oarlock-trainer is neither in " + directory_.path().string()));
}

TEST_F(RunTest, RejectsConcurrentRunOfOneJob) {
  job({.nodes = 1, .script = "echo $BASHPID > ready; exec sleep 1000"});
  const auto first = start();
  ASSERT_GT(number_in(file("ready")), 0);
  const auto second = start();
  EXPECT_EQ(second->wait(), 69);
  EXPECT_THAT(second->err(), HasSubstr("a run of 'j' is in progress"));
}

TEST_F(RunTest, RanksHaveTheirOwnFreeMetricsPorts) {
  job({.nodes = 2,
       .per_node = 1,
       .script = ": instead of oarlock-trainer\npython3 -c 'import os, socket; s = socket.socket(); "
                 "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((\"127.0.0.1\", "
                 "int(os.environ[\"OARLOCK_METRICS_PORT\"]) + int(os.environ[\"LOCAL_RANK\"]))); "
                 "print(s.getsockname()[1])'"});
  const auto run = start();
  EXPECT_EQ(run->wait(), 0) << run->out() << run->err();
  for (const std::string& line : lines(run->out())) {
    EXPECT_THAT(run->err(), HasSubstr("http://127.0.0.1:" + line.substr(line.rfind(' ') + 1) + "/metrics"));
  }
}

// Each rank takes pipes and a reserved port; its own limit stays as it is.
TEST_F(RunTest, RunsManyRanksWithLowDescriptorLimit) {
  job({.nodes = 60, .per_node = 1, .script = "ulimit -Sn"});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit small{.rlim_cur = 150, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  const auto run = start();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(run->wait(), 0) << run->err();
  const std::vector<std::string> limits = lines(run->out());
  ASSERT_EQ(limits.size(), 60U);
  for (const std::string& limit : limits) EXPECT_THAT(limit, testing::EndsWith(" 150"));
}

}  // namespace
}  // namespace oarlock::test
