// oarlock run, validate and render without a cluster, and behavior that all commands have in common.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/validate.h"
#include "operator/core/desired.h"
#include "tests/integration/cli/offline_support.h"
#include "tests/support/blocked_file.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "yaml/reader.h"

namespace oarlock::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kExample = test::source_path("manifests/examples/fashion-mnist.yaml");

// A signal must end a command that reads or parses for long.
TEST_F(OfflineTest, SignalsEndCommandsThatRead) {
  std::signal(SIGINT, SIG_DFL);  // inherited; a shell's background jobs ignore it
  write("job.yaml", kJob);
  for (const std::string command : {"validate", "render", "run"}) {
    for (const int signal : {SIGINT, SIGTERM}) {
      const BlockedFile blocked(directory_.path() / "job.yaml");
      const auto run = start({command, "-f", "job.yaml"});
      ASSERT_TRUE(blocked.wait_for_reader()) << command;
      run->signal(signal);
      EXPECT_EQ(run->wait(), 128 + signal) << command;
    }
  }
}

// `run` blocks signals when it begins, and --fresh must not rename anything for a file that has become unreadable.
TEST_F(OfflineTest, RunReadsItsFileOnce) {
  write("job.yaml", R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: j}
spec:
  trainer: {task: x}
  template:
    spec:
      volumes: [{name: code, configMap: {name: scripts}}]
      containers: [{name: trainer, volumeMounts: [{name: code, mountPath: /script}]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
data: {text: hello}
)");
  trainer("case \"$*\" in *--check*) mv job.yaml read.yaml;; esac");
  const auto run = start({"run", "job.yaml"});
  EXPECT_EQ(run->wait(), 0) << run->err();
  EXPECT_EQ(content(directory_.path() / "oarlock-runs/j/volumes/code/text"), "hello");
}

// Without spec.trainer, the settings or a file that the template names are the configuration.
TEST_F(OfflineTest, RunNeedsAConfiguration) {
  const std::string head = "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: ";
  write("none.yaml", head + "{nodes: 1}\n");
  write("file.yaml", head +
                         "{template: {spec: {containers: [{name: trainer, env: [{name: OARLOCK_CONFIG, value: "
                         "trainer.yaml}]}]}}}\n");
  trainer("case $1 in --check) echo \"$*\" >&2; exit 78;; esac; echo \"$OARLOCK_CONFIG\"");
  const auto none = start({"run", "none.yaml"});
  EXPECT_EQ(none->wait(), 78);
  EXPECT_THAT(lines(none->err()), ElementsAre(HasSubstr("none.yaml: j has no spec.trainer, so oarlock-trainer has no "
                                                        "configuration; add it, or give settings")));
  const auto settings = start({"run", "none.yaml", "task=x"});
  EXPECT_EQ(settings->wait(), 78);
  EXPECT_THAT(lines(settings->err()), ElementsAre("--check --nodes 1 --nproc 1 task=x"));
  EXPECT_FALSE(fs::exists(directory_.path() / "oarlock-runs"));
  const auto file = start({"run", "file.yaml"});
  EXPECT_EQ(file->wait(), 0) << file->err();
  EXPECT_EQ(file->out(), "trainer.yaml\n");
}

TEST_F(OfflineTest, ReportsLostOutput) {
  write("job.yaml", kJob);
  for (const std::string arguments :
       {"--version", "--help", "run --help", "validate -f job.yaml", "render -f job.yaml"}) {
    Program full({"/bin/sh", "-c", "exec ./oarlock " + arguments + " >/dev/full"}, {.directory = directory_.path()});
    EXPECT_EQ(full.wait(), 74) << arguments;
    EXPECT_THAT(full.err(), HasSubstr("standard output cannot be written: ")) << arguments;
    Program closed({"/bin/sh", "-c", "exec ./oarlock " + arguments + " <&- >&- 2>&-"},
                   {.directory = directory_.path()});
    EXPECT_EQ(closed.wait(), 0) << arguments;
  }
  write("bad.yaml", "- x\n");
  Program errors({"/bin/sh", "-c", "exec ./oarlock validate -f bad.yaml 2>/dev/full"},
                 {.directory = directory_.path()});
  EXPECT_EQ(errors.wait(), 78);
}

TEST_F(OfflineTest, RenderPrintsTheOperatorsObjects) {
  write("job.yaml", kJob);
  const auto as_json = start({"render", "-f", "job.yaml", "-o", "json", "--attempt", "3"});
  EXPECT_EQ(as_json->wait(), 0) << as_json->err();
  auto job = api::training_job_from_yaml(yaml::parse_all(kJob, "job.yaml")->front(), "job.yaml").value();
  job.metadata.uid = "00000000-0000-0000-0000-000000000000";
  job = control::with_launcher_decision(job, control::default_launcher_image());
  const control::PodFactory factory(job, 3);
  const Json expected = Json::array({control::desired_service(job), factory.pod(0), factory.pod(1)});
  EXPECT_EQ(Json::parse(as_json->out())["items"], expected);
  EXPECT_THAT(as_json->err(), HasSubstr("j: the template's value of RANK is replaced by the operator's"));
  const auto as_yaml = start({"render", "-f", "job.yaml", "--attempt", "3"});
  EXPECT_EQ(as_yaml->wait(), 0);
  Json read = Json::array();
  const auto documents = yaml::parse_all(as_yaml->out(), "out");
  ASSERT_TRUE(documents.has_value()) << documents.error().message;
  for (const yaml::Node& document : *documents) read.push_back(document.to_json());
  EXPECT_EQ(read, expected);
}

TEST_F(OfflineTest, TheExampleIsValid) {
  const auto run = start({"validate", "-f", kExample});
  EXPECT_EQ(run->wait(), 0) << run->err();
  const auto rendered = start({"render", "-f", kExample, "-o", "json"});
  EXPECT_EQ(rendered->wait(), 0);
  const Json items = Json::parse(rendered->out())["items"];
  ASSERT_EQ(items.size(), 3u);
  const Json& container = items[1]["spec"]["containers"][0];
  EXPECT_EQ(container["image"],
            "oarlock/trainer:" +
                content(test::source_path("VERSION")).substr(0, content(test::source_path("VERSION")).find('\n')));
}

// The same file without a template is valid, has complete pods, and runs on this machine.
TEST_F(OfflineTest, JobWithoutTemplate) {
  write("job.yaml", R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: j}
spec:
  nodes: 2
  trainer: {task: x}
  checkpoints: {size: 1Gi}
)");
  trainer("case \"$*\" in *--check*) exit 0;; esac; echo \"$RANK/$WORLD_SIZE $OARLOCK_CHECKPOINT_DIR\"");
  EXPECT_EQ(start({"validate", "-f", "job.yaml"})->wait(), 0);
  const auto rendered = start({"render", "-f", "job.yaml", "-o", "json", "--trainer-image", "mine:7"});
  EXPECT_EQ(rendered->wait(), 0) << rendered->err();
  const Json items = Json::parse(rendered->out())["items"];
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[1]["kind"], "PersistentVolumeClaim");
  EXPECT_EQ(items[2]["spec"]["containers"][0]["image"], "mine:7");
  EXPECT_EQ(items[2]["spec"]["securityContext"]["runAsNonRoot"], true);
  const auto run = start({"run", "-f", "job.yaml"});
  EXPECT_EQ(run->wait(), 0) << run->err();
  const std::string checkpoints = (directory_.path() / "oarlock-runs/j/checkpoints").string();
  EXPECT_THAT(lines(run->out()),
              testing::UnorderedElementsAre("[RANK 0] 0/2 " + checkpoints, "[RANK 1] 1/2 " + checkpoints));
}

TEST_F(OfflineTest, FirstJobHasTwelveLines) {
  const std::string file = test::source_path("manifests/examples/first-job.yaml");
  EXPECT_EQ(lines(content(file)).size(), 12u);
  const auto run = start({"validate", "-f", file});
  EXPECT_EQ(run->wait(), 0) << run->err();
  EXPECT_NE(content(test::source_path("README.md")).find(content(file)), std::string::npos) << "the README shows it";
}

TEST_F(OfflineTest, NamesTheCommandForThoseOfOtherPrograms) {
  const std::pair<const char*, const char*> rows[] = {{"apply", "submit"}, {"get", "list"},     {"describe", "status"},
                                                      {"train", "run"},    {"stop", "suspend"}, {"rm", "delete"}};
  for (const auto& [typed, command] : rows) {
    const auto run = start({typed, "-f", "job.yaml"});
    EXPECT_EQ(run->wait(), 64);
    EXPECT_THAT(lines(run->err()),
                ElementsAre(HasSubstr(fmt::format("unknown command '{}', did you mean '{}'?", typed, command))));
  }
  write("job.yaml", kJob);
  const auto option = start({"run", "job.yaml", "--epochs"});
  EXPECT_EQ(option->wait(), 64);
  EXPECT_THAT(lines(option->err()), ElementsAre(HasSubstr("settings of the trainer have the form epochs=VALUE; see ")));
}

TEST_F(OfflineTest, HelpAndVersion) {
  EXPECT_EQ(start({"--version"})->wait(), 0);
  for (const std::string command : {"run", "launch", "validate", "render"}) {
    const auto help = start({command, "--help"});
    EXPECT_EQ(help->wait(), 0);
    EXPECT_THAT(help->out(), AllOf(HasSubstr("usage: oarlock " + command), HasSubstr("examples:"),
                                   HasSubstr("  oarlock " + command + " ")));
  }
  const auto nothing = start({});
  EXPECT_EQ(nothing->wait(), 64);
  const auto render = start({"render"});
  EXPECT_EQ(render->wait(), 64);
  EXPECT_THAT(lines(render->err()), ElementsAre(HasSubstr("-f FILE")));
}

}  // namespace
}  // namespace oarlock::test
