// Command lines of torchrun, accelerate and mpirun.
#include "cli/convert/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/convert/converters.h"

namespace oarlock::convert {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Strings = std::vector<std::string>;

Strings split(const std::string& text) {
  std::istringstream in(text);
  Strings words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string joined(const Strings& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

Result<LaunchCommand> convert_line(const std::string& line, std::optional<int64_t> nodes = std::nullopt,
                                   Strings* notes = nullptr) {
  return convert_command(split(line), nodes, [&](const std::string& what, const std::string& message) {
    if (notes != nullptr) notes->push_back(what + ": " + message);
  });
}

TEST(TorchrunCommand, RemovesOptionsThatTheOperatorSets) {
  Strings notes;
  const auto command = convert_line(
      "torchrun --nnodes=2 --nproc_per_node 4 --node_rank=0 --master_addr host --master-port 1234 --max-restarts 5 "
      "--tee 3 -m pkg.train --lr 0.1 --nnodes 9",
      std::nullopt, &notes);
  ASSERT_TRUE(command) << command.error().message;
  EXPECT_EQ(joined(command->words), "torchrun --tee 3 -m pkg.train --lr 0.1 --nnodes 9");
  EXPECT_EQ(command->nodes, 2);
  EXPECT_EQ(command->processes, "4");
  EXPECT_EQ(command->port, 1234);
  EXPECT_EQ(command->max_restarts, 5);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("--node_rank: replaced"), HasSubstr("--master_addr: replaced")));
}

TEST(TorchrunCommand, ReadsTopology) {
  struct Row {
    const char* line;
    std::optional<int64_t> nodes;
    const char* processes;
    const char* note;
    std::optional<int64_t> min_nodes{};
  };
  const Row rows[] = {
      {"torchrun --standalone --nproc-per-node gpu t.py", std::nullopt, "auto", "--standalone: replaced"},
      {"torchrun --nnodes 1:4 --nproc-per-node auto t.py", 4, "auto", "", 1},
      {"torchrun --nnodes 2:4 --nnodes=3 t.py", 3, "", ""},
      {"torchrun --nnodes $MIN:4 t.py", 4, "", "'$MIN' is not known before the job runs"},
      {"torchrun --nnodes 3:3 t.py", 3, "", ""},
      {"python3 -u -m torch.distributed.run --nproc-per-node=2 t.py", std::nullopt, "2", ""},
      {"python -m torch.distributed.launch --use_env --nproc_per_node=2 t.py", std::nullopt, "2",
       "--use_env: replaced"},
      {"env A=1 torchrun --nproc_per_node=cpu t.py", std::nullopt, "", "'cpu' has no counterpart"},
      {"torchrun --nnodes $NNODES t.py", std::nullopt, "", "'$NNODES' is not known before the job runs"},
      {"torchrun --rdzv-endpoint node0:29400 t.py", std::nullopt, "", "replaced by MASTER_ADDR"},
  };
  for (const Row& row : rows) {
    Strings notes;
    const auto command = convert_line(row.line, std::nullopt, &notes);
    ASSERT_TRUE(command) << row.line << ": " << command.error().message;
    EXPECT_EQ(command->nodes, row.nodes) << row.line;
    EXPECT_EQ(command->min_nodes, row.min_nodes) << row.line;
    EXPECT_EQ(command->processes, row.processes) << row.line;
    if (*row.note == '\0') {
      EXPECT_THAT(notes, IsEmpty()) << row.line;
    } else {
      EXPECT_THAT(notes, ElementsAre(HasSubstr(row.note))) << row.line;
    }
  }
}

TEST(TorchrunCommand, ReportsMistakes) {
  struct Row {
    const char* line;
    const char* message;
  };
  const Row rows[] = {
      {"torchrun --nproc-per-node 4", "torchrun: no program follows the options"},
      {"torchrun --nproc-per-nod 4 t.py", "--nproc-per-nod is not a known option; did you mean --nproc-per-node?"},
      {"torchrun --nnodes", "torchrun: --nnodes needs a value"},
      {"torchrun --nnodes 0 t.py", "torchrun: --nnodes is '0'; a number from 1 is expected"},
      {"torchrun --nnodes 4:1 t.py", "the minimum is above the maximum"},
      {"accelerate launch --num_machines 1:2 t.py", "--num_machines is '1:2'; a number from 1 is expected"},
      {"torchrun --standalone=1 t.py", "--standalone has no value"},
      {"torchrun --nproc-per-node -4 t.py", "a number from 1 is expected"},
  };
  for (const Row& row : rows) {
    const auto command = convert_line(row.line);
    ASSERT_FALSE(command) << row.line;
    EXPECT_EQ(command.error().code, ExitCode::kUsage);
    EXPECT_THAT(command.error().message, HasSubstr(row.message));
  }
}

TEST(AccelerateCommand, NumbersMachinesFromEnvironment) {
  const auto command = convert_line(
      "accelerate launch --multi_gpu --num_machines 2 --num_processes 8 --machine_rank 0 --main_process_ip 10.0.0.1 "
      "--main_process_port 29555 --mixed_precision bf16 t.py --x");
  ASSERT_TRUE(command) << command.error().message;
  EXPECT_EQ(joined(command->words),
            "accelerate launch --num_processes 8 --num_machines 2 --machine_rank $(NODE_RANK) --main_process_ip "
            "$(MASTER_ADDR) --main_process_port $(MASTER_PORT) --multi_gpu --mixed_precision bf16 t.py --x");
  EXPECT_EQ(command->processes, "4");
  EXPECT_EQ(command->port, 29555);
  const auto uneven = convert_line("accelerate launch --num_machines 2 --num_processes 7 t.py");
  ASSERT_FALSE(uneven);
  EXPECT_THAT(uneven.error().message, HasSubstr("--num_processes 7 is not a multiple of the 2 nodes"));
}

TEST(MpirunCommand, StartsScriptsWithTorchrun) {
  const auto command = convert_line(
      "mpirun --allow-run-as-root -np 8 -H a:4,b:4 -bind-to none -x A=1 -x PATH -mca pml ob1 python -u t.py --x", 2);
  ASSERT_TRUE(command) << command.error().message;
  EXPECT_EQ(joined(command->words), "torchrun t.py --x");
  EXPECT_EQ(command->processes, "4");
  EXPECT_EQ(command->environment.at("A"), "1");
  EXPECT_FALSE(command->environment.contains("PATH"));
  EXPECT_EQ(joined(convert_line("mpirun -np 8 python -u -W ignore t.py", 2)->words),
            "torchrun --no-python python -u -W ignore t.py");
  const auto two_programs = convert_line("mpirun -np 2 python a.py : -np 2 python b.py", 2);
  ASSERT_FALSE(two_programs);
  EXPECT_THAT(two_programs.error().message, HasSubstr("':' begins another program"));
}

TEST(LaunchCommand, LeavesOtherCommandsUnchanged) {
  const auto command = convert_line("python3 -m pkg.run --nproc-per-node 2");
  ASSERT_TRUE(command);
  EXPECT_EQ(joined(command->words), "python3 -m pkg.run --nproc-per-node 2");
  EXPECT_EQ(command->launcher, LauncherKind::kNone);
  EXPECT_TRUE(mentions_launcher({"sh", "-c", "cd /x && torchrun t.py"}));
  EXPECT_FALSE(mentions_launcher({"python3", "train.py"}));
  EXPECT_FALSE(mentions_launcher({}));
}

TEST(CommandLine, BecomesJob) {
  const auto job = convert_command_line(split("torchrun --nnodes 2 --nproc-per-node 4 src/Train_Net.py --lr 0.1"),
                                        LauncherKind::kTorchrun, {.image = "i:1", .gpus = 4});
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->job["metadata"]["name"], "train-net");
  EXPECT_EQ(job->job["spec"]["nodes"], 2);
  EXPECT_EQ(job->job["spec"]["processesPerNode"], 4);
  EXPECT_EQ(job->job["spec"]["template"]["spec"]["containers"][0], Json::parse(R"({
    "name": "trainer", "image": "i:1", "command": ["torchrun", "src/Train_Net.py", "--lr", "0.1"],
    "resources": {"limits": {"nvidia.com/gpu": 4}}})"));
  EXPECT_THAT(job->notes, ElementsAre("note: src/Train_Net.py: is relative to the working directory of the image"));
}

TEST(CommandLine, ElasticTorchrunBecomesElasticJob) {
  const auto job =
      convert_command_line(split("torchrun --nnodes 2:4 --rdzv-backend c10d t.py"), LauncherKind::kTorchrun, {});
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->job["spec"]["nodes"], 4);
  EXPECT_EQ(job->job["spec"]["elastic"], Json::parse(R"({"minNodes": 2, "maxNodes": 4})"));
  EXPECT_THAT(job->notes, testing::Contains(HasSubstr("--rdzv-backend: replaced")));
}

TEST(CommandLine, ReportsMistakes) {
  const auto message = [](const std::string& line, LauncherKind kind) {
    const auto job = convert_command_line(split(line), kind, {});
    return job ? "" : job.error().message;
  };
  EXPECT_THAT(message("", LauncherKind::kTorchrun), HasSubstr("missing command; write it after --"));
  EXPECT_THAT(message("train.py", LauncherKind::kTorchrun), HasSubstr("'train.py' is not torchrun"));
  EXPECT_THAT(message("torchrun t.py", LauncherKind::kAccelerate), HasSubstr("is not accelerate launch"));
  EXPECT_THAT(message("torchrun \xff t.py", LauncherKind::kTorchrun), HasSubstr("not UTF-8"));
  EXPECT_THAT(message("torchrun --nproc-per-node 999 t.py", LauncherKind::kTorchrun),
              HasSubstr("spec.processesPerNode: 999 is too large"));
}

}  // namespace
}  // namespace oarlock::convert
