// The check of TrainingJobs that oarlock validate and oarlock submit share, with a stand-in for oarlock-trainer.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <csignal>

#include "common/error.h"
#include "tests/integration/cli/offline_support.h"
#include "tests/support/terminal_program.h"

namespace oarlock::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using JobCheckTest = OfflineTest;

std::string job_with_task(const std::string& name, const std::string& task) {
  return fmt::format(
      "---\napiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {{name: {}}}\nspec: {{trainer: {{task: "
      "{}}}}}\n",
      name, task);
}

TEST_F(JobCheckTest, ValidateRunsTrainerCheck) {
  write("job.yaml",
        "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec:\n  trainer: {task: x}\n  "
        "template: {spec: {containers: [{name: trainer}]}}\n");
  const auto without = start({"validate", "-f", "job.yaml"});
  EXPECT_EQ(without->wait(), 0);
  EXPECT_THAT(without->err(), HasSubstr("job.yaml: note: spec.trainer is not checked: oarlock-trainer is neither in"));
  trainer("echo \"$*\" >arguments; echo details");
  const auto good = start({"validate", "-f", "job.yaml"});
  EXPECT_EQ(good->wait(), 0);
  EXPECT_THAT(lines(good->out()), ElementsAre("job.yaml: TrainingJob j is valid: 1 node x 1 rank"));
  EXPECT_THAT(lines(content(directory_.path() / "arguments")),
              ElementsAre("--check --config job.yaml --job default/j --nodes 1 --nproc 1"));
  trainer("echo job.yaml:5:13: unknown task >&2; exit 78");
  const auto bad = start({"validate", "-f", "job.yaml"});
  EXPECT_EQ(bad->wait(), 78);
  EXPECT_EQ(bad->out(), "");
  EXPECT_THAT(lines(bad->err()), ElementsAre("job.yaml:5:13: unknown task"));
}

// The number of ranks determines whether the configuration is valid.
TEST_F(JobCheckTest, PassesTheSizesOfTheGroup) {
  const std::string head =
      "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec:\n  trainer: {task: x}\n";
  trainer("echo \"$*\" > arguments");
  const auto sizes_of = [&](const std::string& spec, const std::vector<std::string>& command) {
    write("job.yaml", head + spec);
    EXPECT_EQ(start(command)->wait(), 0);
    const std::string arguments = content(directory_.path() / "arguments");
    const size_t begin = arguments.find(" --nodes");
    return begin == std::string::npos ? arguments : arguments.substr(begin, arguments.find('\n') - begin);
  };
  EXPECT_EQ(sizes_of("  nodes: 2\n  processesPerNode: 4\n", {"validate", "job.yaml"}), " --nodes 2 --nproc 4");
  EXPECT_EQ(sizes_of("  nodes: 4\n  elastic: {minNodes: 2, maxNodes: 8}\n", {"validate", "job.yaml"}),
            " --nodes 4 --min-nodes 2 --nproc 1");
  EXPECT_EQ(sizes_of("  processesPerNode: auto\n  resourcesPerNode: {limits: {nvidia.com/gpu: 3}}\n",
                     {"validate", "job.yaml"}),
            " --nodes 1 --nproc 3");
}

TEST_F(JobCheckTest, ValidateChecksTheTrainerPartOfEveryJob) {
  const std::string job =
      "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: NAME, namespace: team}\nspec:\n  trainer: "
      "{task: NAME}\n  template: {spec: {containers: [{name: trainer}]}}\n";
  std::string good = job;
  std::string bad = job;
  for (int i = 0; i < 2; ++i) {
    good.replace(good.find("NAME"), 4, "good");
    bad.replace(bad.find("NAME"), 4, "bad");
  }
  write("job.yaml", good + "---\n" + bad);
  trainer("echo \"$*\" >> arguments; case \"$*\" in *team/bad*) echo unknown task >&2; exit 78;; esac");
  const auto run = start({"validate", "-f", "job.yaml"});
  EXPECT_EQ(run->wait(), 78);
  EXPECT_THAT(lines(run->out()), ElementsAre("job.yaml: TrainingJob good is valid: 1 node x 1 rank"));
  EXPECT_THAT(lines(run->err()), ElementsAre("unknown task"));
  EXPECT_THAT(lines(content(directory_.path() / "arguments")),
              ElementsAre("--check --config job.yaml --job team/good --nodes 1 --nproc 1",
                          "--check --config job.yaml --job team/bad --nodes 1 --nproc 1"));
}

// Messages of oarlock-trainer name the standard input, not the copy that it reads.
TEST_F(JobCheckTest, TrainerCheckNamesStandardInput) {
  trainer("echo \"$*\" >&2");
  write("job.yaml",
        "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: {trainer: {task: x}}\n");
  Program run({"/bin/sh", "-c", "cat job.yaml | ./oarlock validate -f -"},
              {.environment = {{"PATH", "/usr/bin:/bin"}}, .directory = directory_.path()});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(lines(run.err()),
              ElementsAre(AllOf(HasSubstr("--check --config /proc/"), EndsWith(" --config-name stdin"))));
  EXPECT_THAT(lines(run.out()), ElementsAre("stdin: TrainingJob j is valid: 1 node x 1 rank"));
}

// A mistake in spec.trainer ends `submit` before it connects to a cluster.
TEST_F(JobCheckTest, SubmitChecksTheTrainersConfiguration) {
  write("job.yaml",
        "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: {trainer: {task: x}}\n");
  const auto submit = [&] {
    auto run = start({"submit", "--kubeconfig", "missing", "job.yaml"});
    const int code = run->wait();
    return std::pair(code, run->err());
  };
  const auto unchecked = submit();
  EXPECT_EQ(unchecked.first, to_int(ExitCode::kNoInput));
  EXPECT_THAT(unchecked.second,
              AllOf(HasSubstr("job.yaml: note: spec.trainer is not checked: "), HasSubstr("missing")));
  trainer("echo \"$3:4: spec.trainer.task: unknown task 'x'\" >&2; exit 78");
  const auto invalid = submit();
  EXPECT_EQ(invalid.first, to_int(ExitCode::kConfig));
  EXPECT_THAT(lines(invalid.second), ElementsAre(EndsWith("job.yaml:4: spec.trainer.task: unknown task 'x'")));
  trainer("exit 0");
  const auto valid = submit();
  EXPECT_EQ(valid.first, to_int(ExitCode::kNoInput));
  EXPECT_THAT(valid.second, AllOf(HasSubstr("missing"), Not(HasSubstr("spec.trainer"))));
}

TEST_F(JobCheckTest, SubmitReportsTheProblemsOfAllFiles) {
  const std::string head = "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: ";
  write("job.yaml", head + "{trainer: {task: x}}\n");
  write("wrong.yaml", head + "{nodse: 2}\n");
  trainer("echo \"$3: unknown task\" >&2; exit 78");
  const auto run = start({"submit", "--kubeconfig", "missing", "job.yaml", "wrong.yaml"});
  EXPECT_EQ(run->wait(), to_int(ExitCode::kConfig));
  EXPECT_THAT(lines(run->err()), ElementsAre("job.yaml: unknown task", HasSubstr("wrong.yaml:4:8: spec.nodse")));
}

// The program of this machine cannot judge every job.
TEST_F(JobCheckTest, SubmitDoesNotRefuseJobsThatItCannotCheck) {
  const std::string head = "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: ";
  write("job.yaml", head + "{trainer: {task: x}}\n");
  write("own.yaml", head + "{image: registry:5000/kepler:1, trainer: {task: kepler}}\n");
  write("ours.yaml", head + "{image: localhost:5000/oarlock/trainer:1-cuda, trainer: {task: x}}\n");
  const auto submit = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all{"submit", "--kubeconfig", "missing"};
    all.insert(all.end(), words.begin(), words.end());
    auto run = start(all);
    const int code = run->wait();
    return std::pair(code, run->err());
  };
  const int no_cluster = to_int(ExitCode::kNoInput);
  const auto without = submit({"job.yaml", "ours.yaml"});
  EXPECT_EQ(without.first, no_cluster);
  EXPECT_THAT(lines(without.second), ElementsAre(HasSubstr("note: spec.trainer is not checked"), HasSubstr("missing")));
  trainer("echo unknown task >&2; exit 78");
  EXPECT_EQ(submit({"job.yaml"}).first, to_int(ExitCode::kConfig));
  EXPECT_EQ(submit({"ours.yaml"}).first, to_int(ExitCode::kConfig));
  EXPECT_EQ(submit({"job.yaml", "--any-trainer-keys"}).first, no_cluster);
  const auto own = submit({"own.yaml"});
  EXPECT_EQ(own.first, no_cluster);
  EXPECT_THAT(own.second, HasSubstr("own.yaml: note: spec.trainer of j is not checked: the image "
                                    "registry:5000/kepler:1 is not oarlock/trainer\n"));
  trainer("kill -SEGV $$");
  const auto crash = submit({"job.yaml"});
  EXPECT_EQ(crash.first, no_cluster);
  EXPECT_THAT(crash.second, HasSubstr("is not checked: oarlock-trainer ended with exit code 139"));
}

// `validate` has no cluster that could still reject the job, so a check without a result is a failure.
TEST_F(JobCheckTest, ValidateDoesNotJudgeOtherPrograms) {
  const std::string head = "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: ";
  write("job.yaml", head + "{trainer: {task: x}}\n");
  write("own.yaml", head + "{image: registry:5000/kepler:1, trainer: {task: kepler}}\n");
  trainer("echo unknown task >&2; exit 78");
  const auto own = start({"validate", "own.yaml"});
  EXPECT_EQ(own->wait(), 0);
  EXPECT_THAT(own->err(), HasSubstr("the image registry:5000/kepler:1 is not oarlock/trainer"));
  EXPECT_THAT(own->out(), HasSubstr("own.yaml: TrainingJob j is valid"));
  EXPECT_EQ(start({"validate", "job.yaml", "--any-trainer-keys"})->wait(), 0);
  trainer("kill -SEGV $$");
  const auto crash = start({"validate", "job.yaml"});
  EXPECT_EQ(crash->wait(), 139);
  EXPECT_EQ(crash->out(), "");
}

// Jobs that are valid, and probably wrong.
struct WarningCase {
  const char* name;
  std::string spec;
  std::string warning;  // on standard error; empty: none
};

TEST_F(JobCheckTest, ValidateWarns) {
  const std::string container = "template: {spec: {containers: [{name: trainer, image: x, ";
  const std::string end = "}]}}";
  const std::string no_rank = "job.yaml: warning: j: processesPerNode is 2, but the command 'python3'";
  const std::string without_launcher = "launcher: Never, processesPerNode: 2, ";
  const std::string lost = "job.yaml: warning: j: spec.trainer.checkpoint.dir '/out/c' is on no volume";
  const std::string image = "image: oarlock/trainer, ";
  trainer("echo \"$0 $*\" > arguments");
  std::filesystem::copy_file(directory_.path() / "oarlock-trainer", directory_.path() / "kepler");
  for (const WarningCase& row : std::vector<WarningCase>{
           {"plain", without_launcher + container + "command: [python3, train.py]" + end, no_rank},
           {"in a shell", without_launcher + container + "command: [sh, -c, 'cd /x && python3 train.py']" + end,
            no_rank},
           {"in a directory", without_launcher + container + "command: [python3, /fabric/t.py]" + end, no_rank},
           {"the operator's launcher",
            "launcher: Always, processesPerNode: 2, " + container + "command: [python3, train.py]" + end, ""},
           {"several ranks", "processesPerNode: 2, " + container + "command: [python3, train.py]" + end,
            "job.yaml: warning: j: the pods have no launcher, because they have several ranks"},
           {"one rank", container + "command: [python3, train.py]" + end, ""},
           {"torchrun", "processesPerNode: 2, " + container + "command: [torchrun, train.py]" + end, ""},
           {"module",
            "processesPerNode: 2, " + container + "command: [python3, -m, torch.distributed.run, train.py]" + end, ""},
           {"launch in a shell",
            "processesPerNode: 2, " + container + "command: [sh, -c, 'oarlock launch -- python3 train.py']" + end, ""},
           {"entry point", without_launcher + container + "args: [python3, train.py]" + end, ""},
           {"entry point with the operator's launcher", container + "args: [python3, train.py]" + end,
            "job.yaml: warning: j: the pods have no launcher, because container 'trainer' has no command"},
           {"no volume", image + "trainer: {task: x, checkpoint: {dir: /out/c}}", lost},
           {"on a volume", image + "trainer: {task: x, checkpoint: {dir: /checkpoints/c}}", ""},
           {"on its own volume",
            "trainer: {task: x, checkpoint: {dir: /out/c}}, template: {spec: {volumes: [{name: o, hostPath: {path: "
            "/o}}], containers: [{name: trainer, image: oarlock/trainer, volumeMounts: [{name: o, mountPath: "
            "/out/}]}]}}",
            ""},
           {"other program", "trainer: {task: x}, " + container + "command: [kepler]" + end,
            "note: spec.trainer of j is not checked: the container runs 'kepler'; check it with oarlock validate "
            "--trainer PROGRAM"},
           {"setting", "trainer: {task: x}, " + container + "command: [oarlock, launch, oarlock-trainer, a=b]" + end,
            "note: spec.trainer of j is not checked: the command of the container may change it with 'a=b'"}}) {
    write("job.yaml",
          "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: {" + row.spec + "}\n");
    const auto run = start({"validate", "job.yaml"});
    EXPECT_EQ(run->wait(), 0) << row.name << run->err();
    EXPECT_THAT(run->err(), row.warning.empty() ? testing::Matcher<std::string>(testing::IsEmpty())
                                                : testing::Matcher<std::string>(HasSubstr(row.warning)))
        << row.name;
  }
  const auto named = start({"validate", "job.yaml", "--trainer", "./kepler"});
  EXPECT_EQ(named->wait(), 0);
  EXPECT_EQ(named->err(), "");
  EXPECT_THAT(content(directory_.path() / "arguments"), testing::StartsWith("./kepler --check --config job.yaml"));
  EXPECT_EQ(start({"validate", "job.yaml", "--trainer", "missing"})->wait(), to_int(ExitCode::kNoInput));
}

// A problem elsewhere in the file does not hide those of spec.trainer.
TEST_F(JobCheckTest, ReportsTheProblemsOfAllPartsTogether) {
  const std::string head = "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: NAME}\nspec:\n";
  const auto job = [&](const std::string& name, const std::string& spec) {
    std::string text = head + spec;
    return text.replace(text.find("NAME"), 4, name);
  };
  write("job.yaml",
        job("a", "  trainer: {task: x}\n  template: {spec: {containers: [{name: trainer, resouces: {}}]}}\n") +
            "---\n" + job("b", "  trainer: {task: x}\n  nodse: 2\n") +  //
            "---\n" + job("c", "  trainer: {task: y}\n") +              //
            "---\n" + job("d", "  trainer: {task: x}\n") +              //
            "---\n" + job("d", "  trainer: {task: x}\n"));
  trainer("echo \"$5: unknown task\" >&2; exit 78");
  for (const std::string command : {"validate", "submit"}) {
    const auto run = start({command, "job.yaml"});
    EXPECT_EQ(run->wait(), 78) << command;
    EXPECT_EQ(run->out(), "") << command;
    EXPECT_THAT(lines(run->err()),
                ElementsAre(HasSubstr("job.yaml:6:50: spec.template.spec.containers[0].resouces: "),
                            HasSubstr("spec.nodse: "), HasSubstr("a TrainingJob 'd' is already at line "),
                            "default/a: unknown task", "default/c: unknown task"))
        << command;
  }
}

TEST_F(JobCheckTest, ChecksEqualTrainerPartsOnce) {
  write("job.yaml", job_with_task("a", "good") + job_with_task("b", "bad") + job_with_task("c", "good") +
                        job_with_task("d", "bad"));
  trainer("echo \"$5\" >> checked; case \"$5\" in default/b) echo unknown task >&2; exit 78;; esac");
  const auto run = start({"validate", "job.yaml"});
  EXPECT_EQ(run->wait(), 78);
  EXPECT_THAT(lines(content(directory_.path() / "checked")), ElementsAre("default/a", "default/b"));
  EXPECT_THAT(lines(run->out()), ElementsAre("job.yaml: TrainingJob a is valid: 1 node x 1 rank",
                                             "job.yaml: TrainingJob c is valid: 1 node x 1 rank"));
  EXPECT_THAT(lines(run->err()),
              ElementsAre("unknown task", "job.yaml: spec.trainer of d has the same problems as that of b"));
}

TEST_F(JobCheckTest, LimitsTheProblemsOfAFile) {
  std::string jobs;
  for (int i = 0; i < 10; ++i) jobs += job_with_task(fmt::format("j{}", i), fmt::format("t{}", i));
  write("job.yaml", jobs);
  write("other.yaml", job_with_task("other", "x"));
  trainer("seq 15 >&2; exit 78");
  const auto run = start({"validate", "job.yaml", "other.yaml"});
  EXPECT_EQ(run->wait(), 78);
  const std::vector<std::string> shown = lines(run->err());
  ASSERT_THAT(shown, SizeIs(2 * 15 + 1 + 15)) << run->err();
  EXPECT_EQ(shown[2 * 15], "job.yaml: and 8 more jobs whose spec.trainer is not checked");
  EXPECT_EQ(shown.back(), "15") << "of the other file";
}

TEST_F(JobCheckTest, LimitsTheNumberOfChecks) {
  std::string jobs;
  for (int i = 0; i < 102; ++i) jobs += job_with_task(fmt::format("j{}", i), fmt::format("t{}", i));
  write("job.yaml", jobs);
  trainer("echo x >> checked");
  const auto validate = start({"validate", "job.yaml"});
  EXPECT_EQ(validate->wait(), to_int(ExitCode::kUsage));
  EXPECT_THAT(lines(content(directory_.path() / "checked")), SizeIs(100));
  EXPECT_THAT(lines(validate->out()), SizeIs(100));
  const std::string note =
      "job.yaml: note: spec.trainer of 2 more jobs is not checked: the file has more than 100 different ones; split it";
  EXPECT_THAT(lines(validate->err()), ElementsAre(note));
  const auto submit = start({"submit", "--kubeconfig", "missing", "job.yaml"});
  EXPECT_EQ(submit->wait(), to_int(ExitCode::kNoInput));
  EXPECT_THAT(lines(submit->err()), ElementsAre(note, HasSubstr("missing")));
}

TEST_F(JobCheckTest, ShowsProgressOnATerminal) {
  write("job.yaml", job_with_task("a", "x") + job_with_task("b", "y"));
  trainer("exit 0");
  TerminalProgram run({(directory_.path() / "oarlock").string(), "validate", "job.yaml"}, directory_.path());
  EXPECT_EQ(run.wait(), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("oarlock validate: checking spec.trainer of b (2 of 2)"));
  EXPECT_THAT(screen(run.output()), AllOf(Contains("job.yaml: TrainingJob b is valid: 1 node x 1 rank"),
                                          Not(Contains(HasSubstr("checking")))));
}

// A signal ends both commands with its code, even if what was checked before is valid or invalid.
TEST_F(JobCheckTest, ASignalDuringTheTrainersCheckIsTheExitCode) {
  const std::string job =
      "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: NAME}\nspec: {trainer: {task: x}}\n";
  for (const char* name : {"a", "b"}) {
    std::string text = job;
    write(std::string(name) + ".yaml", text.replace(text.find("NAME"), 4, name));
  }
  for (const std::string exit_code : {"0", "78"}) {
    trainer("case $3 in a.yaml) exit 78;; esac; trap 'exit " + exit_code +
            "' TERM; echo started; echo started >&2; "
            "while :; do sleep 0.01; done");
    for (const std::string command : {"validate", "submit"}) {
      const auto run = start({command, "a.yaml", "b.yaml"});
      ASSERT_TRUE(test::eventually([&] { return (run->out() + run->err()).find("started") != std::string::npos; }));
      run->signal(SIGTERM);
      EXPECT_EQ(run->wait(), 128 + SIGTERM) << command << " with exit code " << exit_code;
    }
  }
}

// The standard input of oarlock-trainer is another one.
TEST_F(JobCheckTest, ReadsDescriptorsByTheirPaths) {
  trainer("grep -c '^kind: TrainingJob' \"$3\" >&2");
  write("job.yaml",
        "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: {trainer: {task: x}}\n");
  for (const char* command :
       {"./oarlock validate -f /dev/stdin < job.yaml", "./oarlock validate -f /dev/fd/3 3< job.yaml",
        "./oarlock validate -f /proc/self/fd/0 < job.yaml"}) {
    Program run({"/bin/sh", "-c", command},
                {.environment = {{"PATH", "/usr/bin:/bin"}}, .directory = directory_.path()});
    EXPECT_EQ(run.wait(), 0) << command;
    EXPECT_THAT(lines(run.err()), ElementsAre("1")) << command;
    EXPECT_THAT(lines(run.out()), ElementsAre(EndsWith(": TrainingJob j is valid: 1 node x 1 rank"))) << command;
  }
  Program unreadable({"/bin/sh", "-c", "./oarlock validate -f - 0> other"},
                     {.environment = {{"PATH", "/usr/bin:/bin"}}, .directory = directory_.path()});
  EXPECT_EQ(unreadable.wait(), to_int(ExitCode::kNoInput));
  EXPECT_THAT(unreadable.err(), HasSubstr("standard input cannot be read: Bad file descriptor"));
}

}  // namespace
}  // namespace oarlock::test
