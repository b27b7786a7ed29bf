// Commands that start the ranks themselves, and the states of the processes of ranks.
#include "cli/launch/rank_launchers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/launch/rank_processes.h"

namespace oarlock::launch {
namespace {

using Words = std::vector<std::string>;

TEST(RankLaunchers, AreFoundInCommands) {
  const std::vector<Words> commands = {
      {"torchrun", "--nproc-per-node", "4", "train.py"},
      {"/opt/venv/bin/torchrun", "train.py"},
      {"python3", "-u", "-m", "torch.distributed.run", "train.py"},
      {"python", "-m", "torch.distributed.launch", "train.py"},
      {"python3", "/opt/venv/bin/torchrun", "train.py"},
      {"accelerate", "launch", "train.py"},
      {"python3", "-m", "accelerate.commands.launch", "train.py"},
      {"deepspeed", "train.py"},
      {"mpirun", "-np", "2", "python3", "train.py"},
      {"mpiexec", "-n", "2", "train"},
      {"horovodrun", "-np", "2", "python3", "train.py"},
      {"srun", "python3", "train.py"},
      {"oarlock", "launch", "--", "python3", "train.py"},
      {"sh", "-c", "torchrun train.py"},
      {"/bin/bash", "-ec", "pip install -e . && cd /app\nexec torchrun train.py"},
      {"bash", "-euo", "pipefail", "-c", "export A=1; if true; then accelerate launch train.py; fi"},
      {"env", "A=1", "torchrun", "train.py"},
      {"nice", "-n", "10", "torchrun", "train.py"},
      {"tini", "--", "sh", "-c", "exec nohup torchrun train.py"},
      {"uv", "run", "torchrun", "train.py"},
      {"conda", "run", "-n", "train", "torchrun", "train.py"},
      {"timeout", "-k", "5", "30m", "torchrun", "train.py"},
  };
  for (const Words& words : commands) EXPECT_TRUE(starts_ranks(words)) << words[0] << " " << words.back();
}

TEST(RankLaunchers, AreNotConfusedWithPrograms) {
  const std::vector<Words> commands = {
      {},
      {"python3", "train.py"},
      {"python3", "train.py", "--launcher", "torchrun"},
      {"python3", "-m", "train", "torchrun"},
      {"accelerate", "config"},
      {"oarlock-trainer", "--config", "torchrun"},
      {"oarlock", "report", "step=1"},
      {"sh", "-c", "python3 train.py # not torchrun"},
      {"sh", "-c", "echo torchrun; python3 train.py"},
      {"sh", "-c", "unclosed ' torchrun"},
      {"sh", "train.sh"},
      {"bash", "train.sh", "-c", "deepspeed"},
      {"sh", "-c", "uv pip install deepspeed && python train.py"},
      {"bash", "-lc", "conda activate deepspeed && python train.py"},
      {"sh", "-c", "command -v deepspeed || true; python train.py"},
      {"conda", "run", "-n", "deepspeed", "python", "train.py"},
      {"uv", "run", "train.py", "--strategy", "deepspeed"},
      {"sh", "-c"},
      {"env", "TOOL=torchrun", "python3", "train.py", "torchrun"},
  };
  for (const Words& words : commands) EXPECT_FALSE(starts_ranks(words)) << (words.empty() ? "" : words.back());
}

TEST(RankProcesses, ReadsStatsOfAnyProgramName) {
  const auto stat = parse_process_stat("42 (a) S (b)) T 7 42 42 0 -1 4194304 1 2 3 4 50 6 0 0 20 0 1 0 9 1 1\n");
  ASSERT_TRUE(stat);
  EXPECT_EQ(*stat, (ProcessStat{.pid = 42, .parent = 7, .program = "a) S (b)", .state = 'T', .ticks = 56}));
  for (const char* text : {"", "42", "42 (a", "x (a) S 1 2 3", "42 (a) S", "42 (a) S 7 1 1 1"})
    EXPECT_FALSE(parse_process_stat(text)) << text;
}

TEST(RankProcesses, FindsThisProcess) {
  RankProcesses processes(false);
  const auto ranks = processes.read({{5, ::getpid()}, {6, -1}});
  ASSERT_EQ(ranks.size(), 1U);
  EXPECT_EQ(ranks.at(5).rank, 5);
  EXPECT_NE(ranks.at(5).state, "");
}

}  // namespace
}  // namespace oarlock::launch
