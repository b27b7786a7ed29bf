// The help of all commands, their man pages and completions, `-` for standard input, and files as arguments.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <regex>

#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace oarlock::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::unique_ptr<Program> run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), oarlock());
  return std::make_unique<Program>(std::move(arguments));
}

std::string output_of(std::vector<std::string> arguments) {
  const auto program = run(std::move(arguments));
  EXPECT_EQ(program->wait(), 0) << program->err();
  return program->out();
}

// Runs a script of bash in which `oarlock` is the program under test.
std::unique_ptr<Program> shell(const std::string& script) {
  return std::make_unique<Program>(
      std::vector<std::string>{"/bin/bash", "-c", fmt::format("oarlock() {{ '{}' \"$@\"; }}\n{}", oarlock(), script)});
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Returns the names of all commands, such as "convert torchrun", in the order of the help.
std::vector<std::string> all_commands() {
  std::vector<std::string> out;
  for (const std::string& line : lines(output_of({"help", "--all"}))) {
    const std::string heading = "==== oarlock ";
    if (line.starts_with(heading) && line.ends_with(" ====") && line != "==== oarlock ====")
      out.push_back(line.substr(heading.size(), line.size() - heading.size() - std::string(" ====").size()));
  }
  EXPECT_THAT(out, testing::IsSupersetOf({"run", "convert torchrun", "install", "submit", "version"}));
  return out;
}

// A change of the help is a change of the interface, which is reviewed as a change of the golden file.
TEST(Help, OfAllCommandsIsTheGoldenFile) {
  const std::string version = replaced(output_of({"version"}), "oarlock ", "");
  expect_golden("cli_help.txt",
                replaced(output_of({"help", "--all"}), version.substr(0, version.find('\n')), "VERSION"));
}

TEST(Help, CommandAndFlagAgree) {
  for (const std::string& command : all_commands()) {
    const auto program = shell(fmt::format("diff <(oarlock help {0}) <(oarlock {0} --help)", command));
    EXPECT_EQ(program->wait(), 0) << command << program->out() << program->err();
  }
  EXPECT_EQ(output_of({"help"}), output_of({"--help"}));
  EXPECT_EQ(output_of({"version"}), output_of({"--version"}));
}

TEST(Help, UnknownCommandListsCommands) {
  const auto program = run({"help", "lanch"});
  EXPECT_EQ(program->wait(), 64);
  EXPECT_THAT(program->err(), AllOf(HasSubstr("there is no command 'lanch'; the commands are: run, launch, ")));
}

// The pages have each command in backquotes: `oarlock run`, `run` or `run FILE`.
TEST(Documentation, HasEveryCommand) {
  const std::string exit_codes = content(source_path("docs/exit-codes.md"));
  const std::string pages[] = {exit_codes.substr(exit_codes.find("## By program")),
                               content(source_path("docs/cli.md"))};
  for (const std::string& command : all_commands()) {
    if (command.find(' ') != std::string::npos) continue;  // a subcommand, which its command describes
    const std::regex name("`(oarlock )?" + command + "[ `]");
    for (const std::string& page : pages)
      EXPECT_TRUE(std::regex_search(page, name))
          << command << " is missing from a page that begins with " << page.substr(0, page.find('\n'));
  }
}

// groff reports unknown macros and escapes.
TEST(Man, PagesHaveNoWarnings) {
  std::vector<std::string> commands = all_commands();
  commands.emplace_back();  // oarlock itself
  for (const std::string& command : commands) {
    const auto program = shell(fmt::format("oarlock man {} > page && groff -man -Tutf8 -ww -z page", command));
    EXPECT_EQ(program->wait(), 0);
    EXPECT_THAT(program->err(), IsEmpty()) << command;
    const std::string page = content(program->directory() / "page");
    EXPECT_THAT(page, AllOf(HasSubstr(".TH \"OARLOCK"), HasSubstr("\n.SH SYNOPSIS\n"))) << command;
  }
}

// Returns what bash offers after `words`, the last of which is being typed.
std::vector<std::string> bash_completions(const std::string& words) {
  const auto program = shell(fmt::format(
      "touch job.yaml; mkdir directory; eval \"$(oarlock completion bash)\"\n"
      "COMP_WORDS=({}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _oarlock; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
      words));
  EXPECT_EQ(program->wait(), 0) << program->err();
  EXPECT_THAT(program->err(), IsEmpty());
  std::vector<std::string> out;
  for (std::string& line : lines(program->out())) {
    if (!line.empty()) out.push_back(std::move(line));
  }
  return out;
}

TEST(Completion, BashCompletesCommandsOptionsAndValues) {
  EXPECT_THAT(bash_completions("oarlock la"), ElementsAre("launch"));
  EXPECT_THAT(bash_completions("oarlock convert tor"), ElementsAre("torchrun"));
  EXPECT_THAT(bash_completions("oarlock run --work"), ElementsAre("--workdir"));
  EXPECT_THAT(bash_completions("oarlock run -f jo"), ElementsAre("job.yaml"));
  EXPECT_THAT(bash_completions("oarlock run --workdir di"), ElementsAre("directory"));
  EXPECT_THAT(bash_completions("oarlock validate jo"), ElementsAre("job.yaml"));
  EXPECT_THAT(bash_completions("oarlock run jo"), ElementsAre("job.yaml"));
  EXPECT_THAT(bash_completions("oarlock render --output \"\""), ElementsAre("yaml", "json"));
  EXPECT_THAT(bash_completions("oarlock completion z"), ElementsAre("zsh"));
}

TEST(Completion, FishCompletesCommandsOptionsAndValues) {
  const auto completions = [](const std::string& words) {
    const auto program =
        shell(fmt::format("touch job.yaml; export HOME=$PWD; oarlock completion fish > oarlock.fish; fish --no-config "
                          "-c 'source oarlock.fish; "
                          "complete -C \"{}\"' | cut -f 1",
                          words));
    EXPECT_EQ(program->wait(), 0) << program->err();
    EXPECT_THAT(program->err(), IsEmpty());
    return lines(program->out());
  };
  EXPECT_THAT(completions("oarlock la"), ElementsAre("launch"));
  EXPECT_THAT(completions("oarlock convert tor"), ElementsAre("torchrun"));
  EXPECT_THAT(completions("oarlock run --workd"), ElementsAre("--workdir"));
  EXPECT_THAT(completions("oarlock run -f jo"), ElementsAre("job.yaml"));
  EXPECT_THAT(completions("oarlock render --output y"), ElementsAre("yaml"));
}

// zsh offers completions only on a terminal, so the script is loaded, and its functions must exist.
TEST(Completion, ZshLoadsScript) {
  const auto program = shell(
      "oarlock completion zsh > script && ZDOTDIR=$PWD zsh -f -c 'autoload -Uz compinit && compinit -u -d dump && "
      "source "
      "./script && whence -w _oarlock _oarlock_run _oarlock_convert_torchrun && print ${_comps[oarlock]}'");
  EXPECT_EQ(program->wait(), 0) << program->err();
  EXPECT_THAT(program->err(), IsEmpty());
  EXPECT_THAT(lines(program->out()), ElementsAre("_oarlock: function", "_oarlock_run: function",
                                                 "_oarlock_convert_torchrun: function", "_oarlock"));
}

TEST(Completion, ScriptsOfOtherShellsNameEveryCommand) {
  for (const std::string name : {"zsh", "fish"}) {
    const std::string script = output_of({"completion", name});
    for (const std::string& command : all_commands())
      EXPECT_THAT(script, HasSubstr(command.substr(command.rfind(' ') + 1))) << name;
    EXPECT_THAT(script, Not(HasSubstr("\x1b")));
  }
  const auto unknown = run({"completion", "tcsh"});
  EXPECT_EQ(unknown->wait(), 64);
}

constexpr char kJob[] =
    "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec: {template: {spec: {containers: "
    "[{name: trainer, image: i, command: [sh, -c, 'echo ran']}]}}}\n";

TEST(StandardInput, IsReadByEveryCommandWithFiles) {
  const std::string pipe = fmt::format("printf '%s' \"{}\" | ", kJob);
  const auto validate = shell(pipe + "oarlock validate -f -");
  EXPECT_EQ(validate->wait(), 0) << validate->err();
  EXPECT_THAT(validate->out(), HasSubstr("stdin: TrainingJob j is valid"));
  const auto render = shell(pipe + "oarlock render -");
  EXPECT_EQ(render->wait(), 0) << render->err();
  EXPECT_THAT(render->out(), HasSubstr("kind: Pod"));
  const auto local = shell(pipe + "oarlock run -");
  EXPECT_EQ(local->wait(), 0) << local->err();
  EXPECT_THAT(local->out(), HasSubstr("ran"));
  const auto convert = shell("oarlock convert -f - < /dev/null");
  EXPECT_EQ(convert->wait(), 78);
}

TEST(Arguments, AreFilesAndSettings) {
  const auto job = shell(fmt::format("printf '%s' \"{}\" > job.yaml; oarlock run job.yaml", kJob));
  EXPECT_EQ(job->wait(), 0) << job->err();
  EXPECT_THAT(job->out(), HasSubstr("ran"));
  struct Row {
    const char* command;
    const char* message;
  };
  const Row rows[] = {
      {"oarlock run", "missing file; give it as oarlock run FILE"},
      {"oarlock run a.yaml b.yaml", "'b.yaml' is not KEY=VALUE"},
      {"oarlock validate", "missing file"},
      {"oarlock render", "give one file"},
      {"oarlock convert", "missing file; give it with -f FILE"},
      {"oarlock convert -f - -f -", "standard input (-) is given twice"},
      {"oarlock convert torchrun", "missing command; write it after --"},
      {"oarlock convert torchrun -- torchrun --nproc-per-node", "--nproc-per-node needs a value"},
      {"oarlock convert torchrun --gpus 0 -- torchrun t.py", "--gpus"},
  };
  for (const Row& row : rows) {
    const auto program = shell(row.command);
    EXPECT_EQ(program->wait(), 64) << row.command << program->err();
    EXPECT_THAT(program->err(), HasSubstr(row.message));
    EXPECT_EQ(lines(program->err()).size(), 1) << program->err();
  }
}

TEST(Convert, PrintsJobAndNotes) {
  const auto program =
      run({"convert", "torchrun", "--image", "i:1", "--", "torchrun", "--nnodes", "2", "train.py", "--", "x"});
  EXPECT_EQ(program->wait(), 0) << program->err();
  EXPECT_THAT(program->out(), AllOf(HasSubstr("kind: TrainingJob\n"), HasSubstr("nodes: 2\n")));
  for (const std::string& line : lines(program->err())) EXPECT_THAT(line, testing::StartsWith("note: "));
  const auto script = run({"convert", "-f", test::source_path("examples/protein_diffusion/slurm.sbatch")});
  EXPECT_EQ(script->wait(), 0) << script->err();
  EXPECT_THAT(script->out(), HasSubstr("oarlock-trainer"));
}

TEST(Doctor, PrintsReport) {
  const auto program = run({"doctor"});
  const int exit_code = program->wait();
  EXPECT_THAT(exit_code, testing::AnyOf(0, 69)) << program->err();
  EXPECT_EQ(exit_code == 0, program->out().find("\n0 problems, ") != std::string::npos) << program->out();
  const auto json = run({"doctor", "-o", "json"});
  EXPECT_EQ(json->wait(), exit_code);
  EXPECT_THAT(json->out(), HasSubstr("\"findings\": ["));
}

}  // namespace
}  // namespace oarlock::test
