// Job scripts of Slurm, and the reader of shell scripts below it.
#include "cli/convert/converters.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/convert/shell_script.h"
#include "common/files.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "yaml/writer.h"

namespace oarlock::convert {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string text_of(const Result<Converted>& job) {
  if (!job) return "error: " + job.error().message + "\n";
  std::string text = yaml::to_yaml(job->job);
  for (const std::string& note : job->notes) text += "# " + note + "\n";
  return text;
}

std::string message_of(const std::string& script) {
  const Result<Converted> job = convert_sbatch(script, "job.sbatch", {});
  EXPECT_FALSE(job) << text_of(job);
  return job ? "" : job.error().message;
}

class SbatchGolden : public testing::TestWithParam<const char*> {};

TEST_P(SbatchGolden, ConvertsScriptAndListsNotes) {
  const std::string name = fmt::format("convert/{}.sbatch", GetParam());
  const Result<std::string> script = read_file(test::data_path(name));
  ASSERT_TRUE(script);
  test::expect_golden(name + ".golden", text_of(convert_sbatch(*script, fmt::format("{}.sbatch", GetParam()), {})));
}

INSTANTIATE_TEST_SUITE_P(Inputs, SbatchGolden, testing::Values("multinode", "accelerate", "tasks", "trainer"),
                         [](const auto& row) { return std::string(row.param); });

TEST(Sbatch, DistinguishesScriptsFromYaml) {
  EXPECT_TRUE(is_job_script("#!/bin/bash\n"));
  EXPECT_TRUE(is_job_script("# comment\n#SBATCH -N 2\n"));
  EXPECT_FALSE(is_job_script("# comment\nkind: PyTorchJob\n"));
}

TEST(Sbatch, ReadsTimes) {
  const auto seconds = [](const std::string& time) {
    const auto job = convert_sbatch("#!/bin/sh\n#SBATCH --time=" + time + "\ntorchrun t.py\n", "j", {});
    EXPECT_TRUE(job) << job.error().message;
    return job ? job->job["spec"].value("activeDeadlineSeconds", int64_t{-1}) : int64_t{-2};
  };
  EXPECT_EQ(seconds("90"), 5400);
  EXPECT_EQ(seconds("1:30"), 90);
  EXPECT_EQ(seconds("01:00:05"), 3605);
  EXPECT_EQ(seconds("2-3"), 2 * 86400 + 3 * 3600);
  EXPECT_EQ(seconds("1-00:10"), 86400 + 600);
  EXPECT_EQ(seconds("1-00:00:01"), 86401);
  EXPECT_EQ(seconds("UNLIMITED"), -1);
}

TEST(Sbatch, ReportsMistakesWithLines) {
  EXPECT_THAT(message_of("#!/bin/sh\necho hello\n"), HasSubstr("job.sbatch: no command that trains was found"));
  EXPECT_THAT(message_of("#!/bin/sh\n#SBATCH --nodes=many\ntorchrun t.py\n"),
              HasSubstr("job.sbatch:2: --nodes is 'many'; a number from 1 is expected"));
  EXPECT_THAT(message_of("#!/bin/sh\n#SBATCH --array=0-7\ntorchrun t.py\n"), HasSubstr("job.sbatch:2: --array"));
  EXPECT_THAT(message_of("#!/bin/sh\n#SBATCH --time=soon\ntorchrun t.py\n"), HasSubstr("a time such as"));
  EXPECT_THAT(message_of("#!/bin/sh\n#SBATCH --nodes\ntorchrun t.py\n"), HasSubstr("--nodes needs a value"));
  EXPECT_THAT(message_of("#!/bin/sh\ntorchrun a.py\ntorchrun b.py\n"),
              HasSubstr("job.sbatch:3: a second command that trains; the first one is in line 2"));
  EXPECT_THAT(message_of("#!/bin/sh\ntorchrun --bad t.py\n"),
              HasSubstr("job.sbatch:2: torchrun: --bad is not a known"));
  EXPECT_THAT(message_of("#!/bin/sh\nsrun $COMMAND\n"),
              HasSubstr("job.sbatch:2: the program is $COMMAND, whose value is known only when the script runs"));
  EXPECT_THAT(message_of("#!/bin/sh\ntorchrun 'open\n"), HasSubstr("job.sbatch:2: a quote is not closed"));
  EXPECT_THAT(message_of("#!/bin/sh\ntorchrun \xff\n"), HasSubstr("not UTF-8"));
}

TEST(Sbatch, ByteZeroIsAnUnknownOption) {
  const std::string script = "#!/bin/sh\n#SBATCH -" + std::string(8, '\0') + "-requeue\nsrun python train.py\n";
  const std::string text = text_of(convert_sbatch(script, "job.sbatch", {}));
  EXPECT_THAT(text, HasSubstr("is not a known option"));
  EXPECT_EQ(text.find('\0'), std::string::npos);
}

TEST(Sbatch, MultipliesMemoryPerCpu) {
  const auto converted = [](const std::string& memory) {
    return text_of(convert_sbatch("#!/bin/sh\n#SBATCH --ntasks-per-node=10 --cpus-per-task=1000000 --mem-per-cpu=" +
                                      memory + "\nsrun python train.py\n",
                                  "job.sbatch", {}));
  };
  EXPECT_THAT(converted("2G"), HasSubstr("20000000Gi"));
  EXPECT_THAT(converted("999999999999G"), AllOf(HasSubstr("train.py"), Not(HasSubstr("memory"))));
  EXPECT_THAT(converted("99999999999999999999G"), AllOf(HasSubstr("train.py"), Not(HasSubstr("memory"))));
}

TEST(Sbatch, ElasticTorchrunBecomesElasticJob) {
  const auto convert = [](const std::string& nodes) {
    return convert_sbatch("#!/bin/sh\n#SBATCH --nodes=3\nsrun torchrun --nnodes " + nodes + " t.py\n", "j",
                          {.image = "i"});
  };
  const auto job = convert("2:4");
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->job["spec"]["nodes"], 3);
  EXPECT_EQ(job->job["spec"]["elastic"], Json::parse(R"({"minNodes": 2, "maxNodes": 4})"));
  EXPECT_THAT(job->notes, testing::IsEmpty());
  const auto other = convert("1:2");
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_FALSE(other->job["spec"].contains("elastic"));
  EXPECT_THAT(other->notes,
              testing::ElementsAre(HasSubstr("starts 1 to 2 nodes, but the script requests 3; the request counts")));
}

TEST(Sbatch, CommandAssignedInConditionIsUnknown) {
  EXPECT_THAT(message_of("#!/bin/sh\nif [[ $SLURM_NNODES == 1 ]]; then\n  L=\"\"\nelse\n  L=\"accelerate launch\"\nfi\n"
                         "export CMD=\"$L t.py\"\neval $CMD\n"),
              AllOf(HasSubstr("job.sbatch:8:"), HasSubstr("known only when the script runs")));
}

TEST(Sbatch, WindowsLineEndsAndQuotesInArguments) {
  const auto job =
      convert_sbatch("#!/bin/sh\r\n#SBATCH -N 2\r\nsrun python t.py \\\r\n  --name 'a b' \"c d\"\r\n", "j", {});
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->job["spec"]["nodes"], 2);
  EXPECT_EQ(job->job["spec"]["template"]["spec"]["containers"][0]["command"],
            Json::parse(R"(["python", "t.py", "--name", "a b", "c d"])"));
}

std::vector<std::string> commands_of(const std::string& script,
                                     const std::map<std::string, std::string>& variables = {}) {
  const auto commands = read_shell_script(script, "s", variables);
  EXPECT_TRUE(commands) << commands.error().message;
  std::vector<std::string> out;
  if (!commands) return out;
  for (const ShellCommand& command : *commands) {
    std::string text;
    for (const ShellWord& word : command.words) text += (text.empty() ? "" : "|") + word.text;
    out.push_back(fmt::format("{}:{}{}", command.line, command.is_conditional ? "?" : "", text));
  }
  return out;
}

TEST(ShellScript, SplitsCommands) {
  EXPECT_THAT(commands_of("a 'b c' \"d\"e \\\n  f # comment\ng; h && i | j >out 2>&1 k\n"),
              testing::ElementsAre("1:a|b c|de|f", "3:g", "3:h", "3:i", "3:j|k"));
}

TEST(ShellScript, ExpandsVariables) {
  EXPECT_THAT(commands_of("A=1\nexport B=\"x $A\"\nrun $A \"$B\" $B ${C:-three} $((A * 4 + N)) '$A'\n", {{"N", "2"}}),
              testing::ElementsAre("3:run|1|x 1|x|1|three|6|$A"));
}

TEST(ShellScript, MarksUnknownValues) {
  const auto commands = read_shell_script("X=$(hostname)\nrun a$X $Y \"$(date)\"\n", "s", {});
  ASSERT_TRUE(commands);
  ASSERT_EQ(commands->size(), 1);
  const auto& words = commands->front().words;
  ASSERT_EQ(words.size(), 4);
  EXPECT_EQ(words[0].unknown, "");
  EXPECT_EQ(words[1].unknown, "$(hostname)");
  EXPECT_EQ(words[2].unknown, "$Y");
  EXPECT_EQ(words[3].unknown, "$(date)");
}

TEST(ShellScript, MarksConditionalCommands) {
  EXPECT_THAT(commands_of("if test a; then\n  b\nelse\n  c\nfi\nfor i in 1 2; do d; done\ne\n"),
              testing::IsSupersetOf({"2:?b", "4:?c", "6:?d", "7:e"}));
}

TEST(ShellScript, SkipsHereDocuments) {
  EXPECT_THAT(commands_of("cat <<EOF > hosts\ntorchrun no.py\nEOF\nlast\n"), testing::ElementsAre("1:cat", "4:last"));
}

TEST(ShellScript, ExportsReachLaterCommands) {
  const auto commands = read_shell_script("A=1\nB=2\nexport A\nexport C=3\nrun\n", "s", {});
  ASSERT_TRUE(commands);
  ASSERT_EQ(commands->size(), 1);
  const auto& exported = commands->front().exported;
  EXPECT_EQ(exported.size(), 2);
  EXPECT_EQ(exported.at("A").text, "1");
  EXPECT_EQ(exported.at("C").text, "3");
}

// Scripts that would expand to gigabytes, nest without end, or leave the reader without progress.
TEST(ShellScript, BoundsHostileScripts) {
  std::string doubling = "A=aaaaaaaaaaaaaaaa\n";
  for (int i = 0; i < 64; ++i) doubling += "A=$A$A\n";
  EXPECT_FALSE(read_shell_script(doubling + "run $A\n", "s", {}));
  EXPECT_FALSE(read_shell_script(std::string(kMaxScriptBytes + 1, 'a'), "s", {}));
  EXPECT_FALSE(read_shell_script("run " + std::string(100'000, '('), "s", {}) &&
               read_shell_script("run $" + std::string(100'000, '('), "s", {}));
  std::string exports;
  for (int i = 0; i < 20'000; ++i) exports += fmt::format("export A{}=1\nrun\n", i);
  EXPECT_FALSE(read_shell_script(exports, "s", {}));
  for (const char* text :
       {"\v\f\v", "$", "${", "$((", "`",    "\\",        "<", "<<", "<<<", ">",          "2>",     "a=(", "$(",
        "\"",     "'", "}",  "fi",  "done", "esac esac", "&", "|",  "()",  "a() { b; }", "export", "=",   "a+=b"}) {
    (void)read_shell_script(text, "s", {});
    (void)convert_sbatch(std::string("#!/bin/sh\n") + text, "s", {});
  }
}

}  // namespace
}  // namespace oarlock::convert
