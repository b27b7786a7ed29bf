// oarlock run with the real trainer: two ranks, DDP, a killed rank, a second run.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/terminal_program.h"

namespace oarlock::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

class RunTrainerTest : public testing::Test {
 protected:
  void job(int steps, const std::string& more = "") {
    std::ofstream(directory_.path() / "job.yaml") << R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: j}
spec:
  nodes: 2
  trainer:
    task: image_classification
    data: {train_samples: 4000, eval_samples: 200}
    steps: )" << steps << R"(
    batch: {size: 8}
    checkpoint: {every_steps: 10}
    log: {every_steps: 10}
)" << more << R"(
  template:
    spec:
      volumes: [{name: checkpoints, emptyDir: {}}]
      containers:
        - {name: trainer, image: x, volumeMounts: [{name: checkpoints, mountPath: /ckpt}]}
)";
  }
  std::unique_ptr<Program> start(const std::vector<std::string>& settings = {}) {
    std::vector<std::string> argv = {oarlock(), "run", "-f", "job.yaml"};
    argv.insert(argv.end(), settings.begin(), settings.end());
    return std::make_unique<Program>(argv, ProgramOptions{.environment = {}, .directory = directory_.path()});
  }
  // The first JSON line of rank 0 with the message; null: there is none.
  static Json line_of(const std::string& output, const std::string& message) {
    for (const std::string& line : lines(output)) {
      if (!line.starts_with("[RANK 0] {")) continue;
      const Json json = Json::parse(line.substr(9), nullptr, false);
      if (json.is_object() && json.value("msg", "").starts_with(message)) return json;
    }
    return nullptr;
  }
  // Returns the pid of a rank of the run, found by the environment of the process.
  static int pid_of_rank(const Program& run, int rank) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string stat = content(entry.path() / "stat");
      const size_t end = stat.rfind(')');
      if (end == std::string::npos || std::stoi(stat.substr(end + 4)) != run.pid()) continue;
      const std::string environment = content(entry.path() / "environ");
      if (environment.find(std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0') != std::string::npos)
        return std::stoi(name);
    }
    return -1;
  }

  TemporaryDirectory directory_;
};

TEST_F(RunTrainerTest, SettingsOfTheCommandLineReachEveryRank) {
  job(20);
  const auto wrong = start({"optimizer.lrr=1", "steps=-1"});
  EXPECT_EQ(wrong->wait(), 78);
  EXPECT_THAT(wrong->err(), HasSubstr("command line: spec.trainer.optimizer.lrr: unknown key; did you mean 'lr'?"));
  EXPECT_THAT(wrong->err(), HasSubstr("command line: spec.trainer.steps: -1 is not in [0, 1000000000000]"));
  const auto run = start({"steps=4", "batch.size=2"});
  ASSERT_EQ(run->wait(), 0) << run->err();
  const Json done = line_of(run->err(), "training is complete");
  ASSERT_TRUE(done.is_object()) << run->err();
  EXPECT_EQ(done["step"], 4);
}

TEST_F(RunTrainerTest, SecondRunReportsCompletion) {
  job(20);
  const auto run = start();
  ASSERT_EQ(run->wait(), 0) << run->err();
  const Json done = line_of(run->err(), "training is complete");
  ASSERT_TRUE(done.is_object()) << run->err();
  EXPECT_EQ(done["parameters_bitwise_equal"], true);
  EXPECT_EQ(done["world_size"], 2);
  EXPECT_EQ(done["checkpoint"], (directory_.path() / "oarlock-runs/j/checkpoints/step-00000020").string());
  EXPECT_THAT(run->err(), HasSubstr("step 20, newest checkpoint at step 20"));
  const auto again = start();
  EXPECT_EQ(again->wait(), 0) << again->err();
  EXPECT_EQ(line_of(again->err(), "resuming from a checkpoint")["resumed_from_step"], 20) << again->err();
}

void expect_one_prefix(const std::string& output) {
  int prefixed = 0;
  for (const std::string& line : lines(output)) {
    if (!line.starts_with("[RANK ")) continue;
    ++prefixed;
    EXPECT_EQ(line.rfind("[RANK "), 0) << line;
  }
  EXPECT_GT(prefixed, 0) << output;
}

TEST_F(RunTrainerTest, LinesHaveOnePrefix) {
  job(4);
  const auto run = start({"--log-format", "text"});
  ASSERT_EQ(run->wait(), 0) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("training is complete"));
  expect_one_prefix(run->err());
  Program launch({oarlock(), "launch", "--nproc", "2", "--", test::program_path("oarlock-trainer"), "--config",
                  "job.yaml", "--log-format", "text"},
                 {.environment = {}, .directory = directory_.path()});
  ASSERT_EQ(launch.wait(), 0) << launch.err();
  EXPECT_THAT(launch.err(), HasSubstr("training is complete"));
  expect_one_prefix(launch.err());
}

// On a terminal: one line of progress that is replaced, a header, a table, and neither JSON nor two prefixes.
void expect_for_people(const std::string& output, int columns) {
  EXPECT_THAT(output, Not(HasSubstr("{\"ts\":"))) << "JSON is for programs";
  EXPECT_THAT(output, HasSubstr("\x1b[K\r")) << "a line of progress";
  EXPECT_THAT(output, HasSubstr("loss ")) << "in the line of progress";
  const std::vector<std::string> shown = screen(output);
  const auto count = [&](const std::string& text) {
    return std::ranges::count_if(shown, [&](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  EXPECT_EQ(count("image_classification on 2 ranks"), 1) << output;
  EXPECT_EQ(count(" parameters"), 2) << "in the header, and whether they are equal";
  EXPECT_EQ(count("4,000 samples for training, 200 for evaluation"), 1);
  EXPECT_EQ(count("the training is complete: step"), 1);
  EXPECT_EQ(count("samples/s"), 1) << "in the table; no line of progress remains";
  // Except for a warning that rank 0 starts slowly, on a loaded machine.
  EXPECT_EQ(count("[RANK 1]"), count("rendezvous: ")) << "the other ranks have nothing to add";
  for (const std::string& line : shown) EXPECT_EQ(line.find("[RANK "), line.rfind("[RANK ")) << line;
  // Lines of progress end with "\r". They fit, so that the terminal does not wrap them.
  size_t begin = 0;
  for (size_t end; (end = output.find_first_of("\r\n", begin)) != std::string::npos; begin = end + 1) {
    const bool is_progress = output[end] == '\r' && output[end + 1] != '\n';
    const std::string shown_line = is_progress ? screen(output.substr(begin, end - begin))[0] : "";
    EXPECT_LT(shown_line.size(), static_cast<size_t>(columns));
  }
}

TEST_F(RunTrainerTest, ShowsProgressOnATerminal) {
  job(60);
  constexpr int kColumns = 70;
  TerminalProgram run({oarlock(), "run", "job.yaml"}, directory_.path(), kColumns);
  EXPECT_EQ(run.wait(), 0) << run.output();
  expect_for_people(run.output(), kColumns);
  EXPECT_THAT(run.output(), HasSubstr("to train longer: oarlock run job.yaml steps=120"));
  TerminalProgram launch(
      {oarlock(), "launch", "--nproc", "2", "--", test::program_path("oarlock-trainer"), "--config", "job.yaml"},
      directory_.path(), kColumns);
  EXPECT_EQ(launch.wait(), 0) << launch.output();
  expect_for_people(launch.output(), kColumns);
}

TEST_F(RunTrainerTest, AnInterruptOnATerminalIsNotReportedAsError) {
  job(100'000);
  TerminalProgram run({oarlock(), "run", "job.yaml", "--fresh"}, directory_.path(), 100);
  ASSERT_TRUE(eventually([&] { return run.output().find("checkpoint saved") != std::string::npos; })) << run.output();
  run.type("\x03");
  EXPECT_EQ(run.wait(), 75) << run.output();
  EXPECT_THAT(run.output(), Not(HasSubstr("ERROR"))) << "nothing has failed";
  EXPECT_THAT(run.output(), HasSubstr("interrupted by a signal at step "));
  EXPECT_THAT(run.output(), HasSubstr("to resume from there: oarlock run job.yaml\r\n"));
}

TEST_F(RunTrainerTest, PipedOutputWithoutPrefixesIsJson) {
  job(8);
  const auto run = start({"--no-prefix", "--log-format", "json"});
  ASSERT_EQ(run->wait(), 0) << run->err();
  int steps = 0;
  for (const std::string& line : lines(run->err())) {
    if (line.starts_with("oarlock run: ") || line.starts_with(" ")) continue;
    const Json json = Json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    if (json["msg"] != "step") continue;
    ++steps;
    EXPECT_EQ(json["epoch"], 1) << "epochs count from 1";
  }
  EXPECT_EQ(steps, 4) << "the steps 1, 2, 4 and 8, although log.every_steps is 10";
}

TEST_F(RunTrainerTest, RejectsSettingsBeforeFreshRenames) {
  job(4);
  ASSERT_EQ(start()->wait(), 0);
  std::ofstream(directory_.path() / "none.yaml")
      << "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: {nodes: 1}\n";
  struct Row {
    std::vector<std::string> arguments;
    const char* error;
  };
  const Row rows[] = {
      {.arguments = {"job.yaml", "optimizer.lr=.inf"},
       .error = "command line: spec.trainer.optimizer.lr: inf is not finite"},
      {.arguments = {"none.yaml", "task=image_classification", "epochs=1", "optimizer.lrr=3"},
       .error = "command line: optimizer.lrr: unknown key; did you mean 'lr'?"},
      {.arguments = {"none.yaml"},
       .error = "none.yaml: j has no spec.trainer, so oarlock-trainer has no configuration"},
  };
  for (const Row& row : rows) {
    std::vector<std::string> argv = {oarlock(), "run", "--fresh"};
    argv.insert(argv.end(), row.arguments.begin(), row.arguments.end());
    Program wrong(argv, {.environment = {}, .directory = directory_.path()});
    EXPECT_EQ(wrong.wait(), 78) << row.error;
    EXPECT_THAT(wrong.err(), HasSubstr(row.error));
    EXPECT_TRUE(fs::exists(directory_.path() / "oarlock-runs/j/run.json")) << row.error;
  }
  EXPECT_EQ(start()->wait(), 0);
}

TEST_F(RunTrainerTest, KilledRankResumesFromCheckpoint) {
  job(600);
  const auto run = start();
  ASSERT_TRUE(eventually([&] { return line_of(run->err(), "checkpoint saved").is_object(); })) << run->err();
  const int pid = pid_of_rank(*run, 1);
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  ASSERT_EQ(run->wait(), 0) << run->err();
  EXPECT_THAT(run->err(),
              HasSubstr("rank 1 ended with signal 9 (SIGKILL); all ranks start again, not counted after progress"));
  EXPECT_GE(line_of(run->err(), "resuming from a checkpoint").value("resumed_from_step", 0), 10) << run->err();
  EXPECT_EQ(line_of(run->err(), "training is complete").value("step", 0), 600);
}

TEST_F(RunTrainerTest, InterruptSavesAndTheNextRunResumes) {
  job(100'000);
  const auto run = start();
  ASSERT_TRUE(eventually([&] { return line_of(run->err(), "checkpoint saved").is_object(); })) << run->err();
  run->signal(SIGINT);
  EXPECT_EQ(run->wait(), 75) << run->err();
  EXPECT_THAT(run->err(), HasSubstr("j: Interrupted after"));
}

TEST_F(RunTrainerTest, ReportsLineOfTypingError) {
  job(20, "    epohcs: 3\n");
  const auto run = start();
  EXPECT_EQ(run->wait(), 78);
  EXPECT_THAT(run->err(), HasSubstr("job.yaml:13:5: spec.trainer.epohcs: unknown key; did you mean 'epochs'?"));
  EXPECT_FALSE(fs::exists(directory_.path() / "oarlock-runs")) << "it is found before the run begins";
}

}  // namespace
}  // namespace oarlock::test
