// oarlock launch with programs that report their progress: /statusz and /metrics, floods, programs that hang, and
// commands that start the ranks themselves.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "common/contract.h"
#include "common/port_reservation.h"
#include "tests/support/program.h"
#include "tests/support/raw_client.h"

namespace oarlock::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// oarlock launch in a pod of a job.
class LaunchProgress : public testing::Test {
 protected:
  std::unique_ptr<Program> launch(std::vector<std::string> options, const std::vector<std::string>& command,
                                  std::map<std::string, std::string> environment = {}) const {
    options.insert(options.begin(), {oarlock(), "launch"});
    options.emplace_back("--");
    options.insert(options.end(), command.begin(), command.end());
    environment.insert({{"OARLOCK_METRICS_PORT", std::to_string(port_.first())},
                        {"OARLOCK_UID", "u"},
                        {"OARLOCK_TERMINATION_LOG", "message.json"}});
    return std::make_unique<Program>(options, ProgramOptions{.environment = std::move(environment)});
  }
  std::string get(const std::string& path) const {
    try {
      const std::string response = raw_get(port_.first(), path);
      const size_t body = response.find("\r\n\r\n");
      return body == std::string::npos ? "" : response.substr(body + 4);
    } catch (const std::system_error&) {
      return "";  // it does not listen yet
    }
  }
  std::optional<RankStatus> status() const { return rank_status_from_json(get("/statusz?uid=u")); }
  bool reaches(int64_t step) const {
    return eventually([&] { return status().value_or(RankStatus()).step >= step; });
  }

  PortReservation port_ = PortReservation::make(1).value();
};

std::vector<std::string> bash(const std::string& script) { return {"/bin/bash", "-c", script}; }

const std::string kWaitForEnd = "until [ -e end ]; do read -t 0.05 < <(:) || :; done";

// As a program without the Python client does.
TEST_F(LaunchProgress, RequestForACheckpointReachesTheProgramAsAFile) {
  const auto program = launch({}, bash(R"(echo '{"step": 1}' > $OARLOCK_PROGRESS
      until [ -e $OARLOCK_CHECKPOINT_REQUEST ]; do read -t 0.05 < <(:) || :; done
      echo '{"step": 2, "checkpointStep": 2}' > $OARLOCK_PROGRESS
      echo request $(cat $OARLOCK_CHECKPOINT_REQUEST)
      )" + kWaitForEnd));
  ASSERT_TRUE(reaches(1)) << program->err();
  get("/statusz?checkpoint=41&uid=other");
  get("/statusz?checkpoint=42&uid=u");
  ASSERT_TRUE(reaches(2)) << program->err();
  EXPECT_EQ(status()->checkpoint_step, 2);
  EXPECT_TRUE(eventually([&] { return program->out().find("request 42") != std::string::npos; })) << program->out();
  program->signal(SIGTERM);
  program->wait();
}

TEST_F(LaunchProgress, ServesWhatRanksReport) {
  const auto program =
      launch({"--nproc", "2"},
             bash(fmt::format(
                 R"(echo '{{"step": 7, "targetSteps": 9, "loss": 0.5, "metrics": {{"lr": 0.1}}}}' > $OARLOCK_PROGRESS
                          [ $RANK = 1 ] || {} report step=8 checkpoint_step=6 loss=nan; {})",
                 oarlock(), kWaitForEnd)));
  ASSERT_TRUE(reaches(8)) << program->err();
  const RankStatus read = *status();
  EXPECT_EQ(read.rank, 0);
  EXPECT_EQ(read.world_size, 2);
  EXPECT_EQ(read.target_steps, 9);
  EXPECT_EQ(read.checkpoint_step, 6);
  EXPECT_EQ(read.loss, 0.5);
  EXPECT_THAT(get("/metrics"), AllOf(HasSubstr("trainer_current_step{rank=\"0\"} 8\n"),
                                     HasSubstr("trainer_reported{name=\"lr\",rank=\"1\"} 0.1\n")));
  EXPECT_THAT(get("/statusz?uid=other"), HasSubstr("another job"));
  Program({"/bin/touch", "end"}, {.directory = program->directory()}).wait();
  EXPECT_EQ(program->wait(), 0) << program->err();
}

TEST_F(LaunchProgress, NamesTheStoppedRank) {
  const auto program = launch({"--nproc", "2"},
                              bash("echo '{\"step\": 1}' > $OARLOCK_PROGRESS; echo $$ > pid.$RANK; sleep 1000 & wait"));
  ::kill(number_in(program->directory() / "pid.1"), SIGSTOP);
  ASSERT_TRUE(reaches(1));
  EXPECT_TRUE(eventually([&] {
    const auto json = nlohmann::json::parse(get("/statusz"), nullptr, false);
    return json.is_object() && json["ranks"].size() == 2 && json["ranks"][1].value("state", "") == "stopped" &&
           json["ranks"][0].value("state", "") == "sleeping" && json["ranks"][1].value("step", 0) == 1;
  })) << get("/statusz");
}

// Writers that wait are slowed down, and the launcher remains responsive.
TEST_F(LaunchProgress, SurvivesAFlood) {
  const auto program = launch({"--nproc", "2", "--grace", "5"},
                              bash("if [ $RANK = 1 ]; then yes '{\"step\": 5}' > $OARLOCK_PROGRESS; fi; "
                                   "head -c 100000 /dev/zero > $OARLOCK_PROGRESS; echo > $OARLOCK_PROGRESS; "
                                   "echo '{\"loss\": NaN}' > $OARLOCK_PROGRESS; "
                                   "echo '{\"step\": 3}' > $OARLOCK_PROGRESS; sleep 1000 & wait"));
  ASSERT_TRUE(reaches(3)) << program->err();
  EXPECT_TRUE(eventually(
      [&] { return get("/metrics").find("trainer_invalid_progress_lines_total 1\n") != std::string::npos; }));
  program->signal(SIGTERM);
  EXPECT_EQ(program->wait(), 128 + SIGTERM);
}

TEST_F(LaunchProgress, ReadsStepsFromOutput) {
  const auto program = launch({"--progress-pattern", R"(step (\d+).*loss ([\d.]+))"},
                              bash("echo 'epoch 1 step 40 loss 0.25'; " + kWaitForEnd));
  ASSERT_TRUE(reaches(40)) << program->err();
  EXPECT_EQ(status()->loss, 0.25);
  EXPECT_EQ(program->out(), "epoch 1 step 40 loss 0.25\n") << "a single rank has no prefix";
  EXPECT_EQ(launch({"--progress-pattern", "step"}, {"true"})->wait(), 64);
  Program reader({"/bin/bash", "-c", "echo step 3 | " + oarlock() + " launch --progress-pattern 'step (\\d+)' -- cat"},
                 {.environment = {{"OARLOCK_METRICS_PORT", std::to_string(port_.first())}}});
  EXPECT_EQ(reader.wait(), 0) << reader.err();
  EXPECT_EQ(reader.out(), "step 3\n") << "a single rank inherits standard input";
}

TEST_F(LaunchProgress, AcceptsKubeflowsProtocol) {
  const std::string client = R"(
import json, os, signal, urllib.error, urllib.request
if os.environ["RANK"] == "1":
    signal.pause()
def post(token, body):
    request = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], data=json.dumps(body).encode(), method="POST",
                                     headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"], encoding="utf-8").read().strip()
body = {"trainerStatus": {"progressPercentage": 20, "metrics": [{"name": "current_step", "value": "41"}]}}
print(post("wrong", body), post(token, body), post(token, {}), flush=True)
input()
)";
  const auto program = launch({"--nproc", "2"}, {"python3", "-c", client}, {{"http_proxy", "http://127.0.0.1:1"}});
  EXPECT_EQ(program->wait(), 1) << "end of file";
  EXPECT_THAT(program->out(), HasSubstr("[RANK 0] 401 200 400\n"));
  EXPECT_EQ(termination_message_from_json(content(program->directory() / "message.json"))->step, 41);
}

// The command runs once, with the environment as it is, and its ranks report to one FIFO.
TEST_F(LaunchProgress, RunsACommandThatStartsTheRanksOnce) {
  const std::string script =
      "echo runs $LOCAL_WORLD_SIZE ${RANK-none}; torchrun() { :; }; if false; then torchrun x; fi; "
      "for r in 2 3; do RANK=$r /bin/bash -c 'echo \"{\\\"step\\\": 6, \\\"rank\\\": $RANK}\" > $OARLOCK_PROGRESS; " +
      kWaitForEnd + "' & done; wait; exit 3";
  const auto program =
      launch({}, bash(script),
             {{"LOCAL_WORLD_SIZE", "2"}, {"PET_NNODES", "2"}, {"NODE_RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}});
  ASSERT_TRUE(reaches(6)) << program->err();
  EXPECT_TRUE(eventually([&] {
    const auto json = nlohmann::json::parse(get("/statusz"));
    return json["ranks"].size() == 2 && json["rank"] == 2 && json["worldSize"] == 4;
  })) << get("/statusz");
  Program({"/bin/touch", "end"}, {.directory = program->directory()}).wait();
  EXPECT_EQ(program->wait(), 3);
  EXPECT_EQ(program->out(), "runs 2 none\n");
  EXPECT_EQ(termination_message_from_json(content(program->directory() / "message.json"))->rank, -1);
}

TEST_F(LaunchProgress, MessageOfASingleRankHasTheException) {
  const auto program = launch({}, {"python3", "-c",
                                   "import atexit, sys\natexit.register(lambda: print('leaked', file=sys.stderr))\n"
                                   "def f(): raise ValueError('bad batch')\nf()"});
  EXPECT_EQ(program->wait(), 1);
  EXPECT_THAT(content(program->directory() / "message.json"),
              HasSubstr("rank 0 ended with exit code 1: ValueError: bad batch\""));
  EXPECT_THAT(program->err(), AllOf(HasSubstr("Traceback"), Not(HasSubstr("[RANK 0]"))));
}

// A progress bar ends its lines with "\r", which ends a line for the pattern, too.
TEST_F(LaunchProgress, PassesBytesOfASingleRankImmediately) {
  for (const std::vector<std::string>& options : {std::vector<std::string>(), {"--progress-pattern", "step (\\d+)"}}) {
    const auto program = launch(options, bash("printf 'step 4 of 9\\rstep 5' >&2; " + kWaitForEnd));
    EXPECT_TRUE(eventually([&] { return program->err() == "step 4 of 9\rstep 5"; })) << program->err();
    EXPECT_TRUE(options.empty() || reaches(4));
    Program({"/bin/touch", "end"}, {.directory = program->directory()}).wait();
    EXPECT_EQ(program->wait(), 0);
    EXPECT_EQ(program->err(), "step 4 of 9\rstep 5");
  }
}

TEST(Report, DoesNothingWithoutALauncher) {
  EXPECT_EQ(Program({oarlock(), "report", "step=1"}).wait(), 0);
  EXPECT_EQ(Program({oarlock(), "report", "step=x"}).wait(), 64);
  EXPECT_EQ(Program({oarlock(), "report"}).wait(), 64);
  Program gone({oarlock(), "report", "step=1"}, {.environment = {{"OARLOCK_PROGRESS", "/nowhere"}}});
  EXPECT_EQ(gone.wait(), 0);
  EXPECT_THAT(gone.err(), HasSubstr("/nowhere: No such file or directory; nothing is reported"));
  Program null({oarlock(), "report", "step=1"}, {.environment = {{"OARLOCK_PROGRESS", "/dev/null"}}});
  EXPECT_EQ(null.wait(), 0);
  EXPECT_THAT(null.err(), HasSubstr("/dev/null: is not a FIFO; nothing is reported"));
}

}  // namespace
}  // namespace oarlock::test
