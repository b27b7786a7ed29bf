// What the processes of the ranks of this node are doing, from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract.h"

namespace oarlock::launch {

// A process, as /proc/PID/stat describes it.
struct ProcessStat {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string program;  // may contain any character
  char state = '?';
  uint64_t ticks = 0;  // CPU time

  bool operator==(const ProcessStat&) const = default;
};

std::optional<ProcessStat> parse_process_stat(std::string_view text);

// Returns the word for a state of a process, such as "stopped" for T.
std::string state_name(char state);

// Not thread-safe.
class RankProcesses {
 public:
  // `starts_ranks`: the processes of the launcher start the ranks, whose environment has RANK.
  explicit RankProcesses(bool starts_ranks) : starts_ranks_(starts_ranks) {}

  // Returns the ranks of the descendants of these processes, by rank, without what they have reported. Each rank has
  // the process that is stopped, or else the one with the most CPU time. Takes milliseconds.
  std::map<int, RankActivity> read(const std::map<int, pid_t>& processes);

 private:
  struct Membership {
    int rank = 0;
    bool is_stated = false;  // by the environment; otherwise the process may be one that starts the ranks
  };
  Membership membership_of(const ProcessStat& process, int rank_of_parent);

  bool starts_ranks_;
  // Ranks by process. The environment of a process that hangs may not be readable, so it is read once.
  std::map<pid_t, Membership> ranks_;
};

}  // namespace oarlock::launch
