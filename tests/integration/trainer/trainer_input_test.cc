// Bad input: one line, the exit code, and the termination message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "ddp/socket.h"
#include "tests/integration/trainer/run_support.h"
#include "tests/support/blocked_file.h"

namespace oarlock {
namespace {

using test::eventually;
using test::http_get;
using test::kLong;
using test::seconds_of;
using test::TemporaryDirectory;
using test::TrainerRanks;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Bad {
  const char* name;
  std::string config;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;
  ExitCode code;
  std::vector<std::string> words;
};

// Returns the standard error of a process that ends as described.
std::string run_bad(const Bad& bad) {
  TrainerRanks ranks(
      1, {.config = bad.config, .arguments = bad.arguments, .environment = bad.environment, .directory = {}});
  const double seconds = seconds_of([&] { EXPECT_THAT(ranks.wait(), ElementsAre(to_int(bad.code))); });
  EXPECT_LT(seconds, 60) << "not by the rendezvous timeout of 300 s";
  const std::string err = ranks.rank(0).err();
  for (const std::string& word : bad.words) {
    EXPECT_THAT(err, HasSubstr(word));
    EXPECT_THAT(ranks.last_word(0).message, HasSubstr(word));
  }
  return err;
}

class BadInput : public testing::TestWithParam<Bad> {};

TEST_P(BadInput, OneLineTheCodeAndTheTerminationMessage) {
  const std::string err = run_bad(GetParam());
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
}

// The task reports these during the training, which has logged its start then.
class BadStep : public testing::TestWithParam<Bad> {};

TEST_P(BadStep, OneErrorTheCodeAndTheTerminationMessage) {
  const std::string err = run_bad(GetParam());
  const std::vector<std::string> lines = test::lines(err);
  const auto is_error = [](const std::string& line) { return line.find(R"("level":"error")") != std::string::npos; };
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(), is_error), 1) << err;
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(is_error(lines.back())) << err;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadInput,
    testing::Values(Bad{"unknown_key",
                        "task: tiny\nsteps: 1\nepohcs: 2\n",
                        {},
                        {},
                        ExitCode::kConfig,
                        {"trainer.yaml:3:1", "epohcs", "epochs"}},
                    Bad{"unknown_option", kLong, {"--epochs", "3"}, {}, ExitCode::kUsage, {"--epochs", "--help"}},
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
                    Bad{"unknown_best_metric",
                        "task: tiny\nepochs: 1\ncheckpoint: {best: {metric: acuracy}}\n",
                        {},
                        {},
                        ExitCode::kConfig,
                        {"checkpoint.best.metric", "no metric 'acuracy'", "did you mean 'accuracy'"}},
                    Bad{"unknown_early_stopping_metric",
                        "task: tiny\nepochs: 1\nearly_stopping: {metrics: [{name: loss}, {name: f1}]}\n",
                        {},
                        {},
                        ExitCode::kConfig,
                        {"early_stopping.metrics[1].name", "'f1'"}},
                    Bad{"unknown_plateau_metric",
                        "task: tiny\nepochs: 1\nschedule: {name: plateau, plateau: {metric: f1}}\n",
                        {},
                        {},
                        ExitCode::kConfig,
                        {"schedule.plateau.metric", "'f1'"}},
                    Bad{"no_full_batch",
                        "task: tiny\nsteps: 1\nbatch: {size: 1000, drop_last: true}\n",
                        {},
                        {},
                        ExitCode::kConfig,
                        {"drop_last"}},
                    Bad{"single_sample_with_batch_norm",
                        "task: tiny\nsteps: 20\nbatch: {size: 32}\ndata: {samples: 33}\n",
                        {},
                        {},
                        ExitCode::kConfig,
                        {"with 1 rank, an epoch of 33 samples has a batch of one sample", "BatchNorm1d",
                         "batch.drop_last: true"}},
                    Bad{"rows_that_the_task_does_not_return",
                        "task: tiny\nsteps: 1\neval: {rows_file: rows.csv}\n",
                        {},
                        {},
                        ExitCode::kConfig,
                        {"eval.rows_file: has no effect with task tiny", "data.rows is false"}},
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

INSTANTIATE_TEST_SUITE_P(Cases, BadStep,
                         testing::Values(Bad{"label_out_of_range",
                                             "task: tiny\nsteps: 1\nbatch: {size: 2}\nmodel: {fault: {kind: label}}\n",
                                             {},
                                             {},
                                             ExitCode::kDataErr,
                                             {"train_step at step 0 (samples ", "is out of bounds"}},
                                         Bad{"mean_in_place_of_a_sum",
                                             "task: tiny\nsteps: 1\nmodel: {fault: {kind: mean}}\n",
                                             {},
                                             {},
                                             ExitCode::kConfig,
                                             {"'loss'", "a mean; return the sum over the samples"}}),
                         [](const auto& test_case) { return std::string(test_case.param.name); });

// Such a command may run in the pod of a rank, which then ends with its own message.
TEST(Input, CommandsThatDoNotTrainWriteNoTerminationMessage) {
  const TemporaryDirectory directory;
  const std::string log = (directory.path() / "message").string();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--check"}, {"--print-config"}, {"--check", "--metrics-port", "none"}}) {
    std::vector<std::string> argv{test::test_trainer()};
    argv.insert(argv.end(), words.begin(), words.end());
    test::Program program(argv, {.environment = {{"OARLOCK_TERMINATION_LOG", log}}, .directory = {}});
    EXPECT_EQ(program.wait(), to_int(ExitCode::kUsage)) << words.back();
    EXPECT_FALSE(std::filesystem::exists(log)) << words.back();
  }
}

// The sizes are those of a TrainingJob, which `oarlock validate` passes.
TEST(Input, CheckComputesTheBatchesOfEverySize) {
  const TemporaryDirectory directory;
  const std::string config = (directory.path() / "trainer.yaml").string();
  std::ofstream(config) << "task: tiny\nsteps: 1\nbatch: {size: 12, per: global}\ngpu_ids: [0, 1]\n";
  const auto check = [&](std::vector<std::string> sizes) {
    std::vector<std::string> argv{test::test_trainer(), "--check", "--config", config};
    argv.insert(argv.end(), sizes.begin(), sizes.end());
    test::Program program(argv);
    const int code = program.wait();
    return std::pair(code, program.err());
  };
  const int invalid = to_int(ExitCode::kConfig);
  EXPECT_EQ(check({}).first, 0);
  EXPECT_EQ(check({"--nodes", "3", "--nproc", "2"}).first, 0);
  EXPECT_EQ(check({"--nodes", "3", "--min-nodes", "1", "--nproc", "2"}).first, 0);
  EXPECT_THAT(check({"--nodes", "5"}), testing::Pair(invalid, HasSubstr("not divisible by 5 ranks")));
  EXPECT_THAT(check({"--nodes", "6", "--min-nodes", "2"}), testing::Pair(invalid, HasSubstr("with 5 nodes")));
  EXPECT_THAT(check({"--nodes", "1", "--nproc", "3"}), testing::Pair(invalid, HasSubstr("2 devices for 3 ranks")));
  EXPECT_EQ(check({"--nproc", "3"}).first, to_int(ExitCode::kUsage));
}

// A signal also ends --check and --print-config, and not only training.
TEST(Input, SignalsEndTheCheckOfAConfiguration) {
  std::signal(SIGINT, SIG_DFL);  // inherited; a shell's background jobs ignore it
  const TemporaryDirectory directory;
  const std::string config = (directory.path() / "trainer.yaml").string();
  std::ofstream(config) << kLong;
  for (const char* flag : {"--check", "--print-config"}) {
    const test::BlockedFile blocked(config);
    test::Program check({test::test_trainer(), flag, "--config", config});
    ASSERT_TRUE(blocked.wait_for_reader()) << flag;
    check.signal(SIGINT);
    EXPECT_EQ(check.wait(), 128 + SIGINT) << flag;
  }
}

// The port is in use, as by a second job on the host's network, because every job's port is 9400.
TEST(Input, MetricsPortInUseIsReplaced) {
  const auto listener = listen_on(0);
  ASSERT_TRUE(listener);
  TrainerRanks ranks(1, {.config = kLong,
                         .arguments = {"--metrics-port", std::to_string(listener->port)},
                         .environment = {{"OARLOCK_UID", "u1"}},
                         .directory = {}});
  const int port = ranks.metrics_port(0);
  EXPECT_NE(port, listener->port);
  EXPECT_TRUE(eventually([&] { return http_get(port, "/statusz?uid=u1").find("\"step\"") != std::string::npos; }));
  EXPECT_EQ(http_get(port, "/statusz?uid=u2"), "") << "a request for another job must not be answered";
  const nlohmann::json warning = ranks.log_line(0, "metrics are served on another port");
  EXPECT_EQ(warning.value("port", 0), port);
  EXPECT_THAT(warning.value("reason", ""), HasSubstr(std::to_string(listener->port)));
  ranks.rank(0).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), ElementsAre(to_int(ExitCode::kTempFail)));
  ::close(listener->descriptor);
}

TEST(Input, TheRendezvousPortIsInUse) {
  const auto listener = listen_on(0);
  ASSERT_TRUE(listener);
  TrainerRanks ranks(1, {.config = std::string(kLong) + "distributed: {rendezvous_timeout_seconds: 0.3}\n",
                         .arguments = {},
                         .environment = {{"RANK", "0"},
                                         {"WORLD_SIZE", "2"},
                                         {"MASTER_ADDR", "127.0.0.1"},
                                         {"MASTER_PORT", std::to_string(listener->port)}},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(to_int(ExitCode::kTempFail)));
  EXPECT_THAT(ranks.last_word(0).message, AllOf(HasSubstr(std::to_string(listener->port)), HasSubstr("MASTER_PORT")));
  ::close(listener->descriptor);
}

// The check of the configuration rejects these settings; otherwise, the first recorded step on a GPU would fail.
TEST(CommandLine, GraphsAreRejectedByTasksThatCannotBeRecorded) {
  struct Row {
    std::vector<std::string> settings;
    std::string reason;  // empty: valid
  };
  const std::vector<Row> rows = {
      {{"task=image_classification"}, ""},
      {{"task=image_classification", "model.activation_checkpointing=true"}, "model.activation_checkpointing"},
      {{"task=protein_diffusion", "model.activation_checkpointing=true"}, "model.activation_checkpointing"},
      {{"task=protein_diffusion", "curriculum.enabled=true"}, "curriculum.enabled"},
      {{"task=comformer", "data.path=x.extxyz"}, "different numbers of atoms"},
      {{"task=gears", "data.path=x.h5ad"}, "which cells are perturbed"},
      {{"task=causal_set", "data.paths=[x.zarr]"}, "different numbers of elements"},
  };
  for (const Row& row : rows) {
    std::vector<std::string> argv = {test::kTrainer, "--check", "steps=1", "cuda.graphs=true"};
    argv.insert(argv.end(), row.settings.begin(), row.settings.end());
    test::Program program(argv);
    EXPECT_EQ(program.wait(), row.reason.empty() ? 0 : 78) << row.settings[0] << program.err();
    EXPECT_THAT(program.err(), HasSubstr(row.reason));
  }
}

TEST(CommandLine, ReportsLostOutput) {
  const auto run = [](const std::string& redirection, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"/bin/sh", "-c", "exec \"$@\" " + redirection, "sh", test::test_trainer()});
    test::Program program(arguments);
    const int code = program.wait();
    return std::pair(code, program.err());
  };
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"--version"},
                                                    {"--print-reference"},
                                                    {"--print-config", "task=tiny", "steps=1"},
                                                    {"--check", "task=tiny", "steps=1"}}) {
    EXPECT_THAT(run(">/dev/full", arguments),
                testing::Pair(to_int(ExitCode::kIoErr), HasSubstr("standard output cannot be written: ")))
        << arguments[0];
    EXPECT_EQ(run("<&- >&- 2>&-", arguments).first, 0) << arguments[0];
  }
  EXPECT_EQ(run("2>/dev/full", {"--check", "task=tiny", "stepz=1"}).first, to_int(ExitCode::kConfig));
}

TEST(CommandLine, HelpVersionCheckAndUsage) {
  const TemporaryDirectory directory;
  const std::string good = directory.path() / "good.yaml";
  const std::string bad = directory.path() / "bad.yaml";
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
  EXPECT_THAT(run({"--version"}, 0), HasSubstr("oarlock-test-trainer, with Oarlock "));
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
