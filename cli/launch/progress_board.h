// The newest progress of the ranks of this node, as the launcher serves it: /statusz for the operator, and /metrics.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "cli/launch/rank_processes.h"
#include "common/clock.h"
#include "common/contract.h"
#include "common/usage_clock.h"

namespace oarlock::launch {

struct ProgressNode {
  int attempt = 0;
  int world_size = 1;
  bool starts_ranks = false;  // the command starts the ranks, and the launcher one process
};

// Thread-safe. Its size is bounded, whatever is reported.
class ProgressBoard {
 public:
  static constexpr size_t kMaxRanks = 256;  // that have reported; further ones are ignored

  ProgressBoard(const ProgressNode& node, const Clock& clock)
      : node_(node), clock_(clock), usage_(clock.steady()), processes_(node.starts_ranks) {}

  // Adds a line of the program of `rank`, which may name another rank.
  void add(int rank, const ProgressReport& report);
  void add_invalid_line();
  // The launcher has started a process for a rank.
  void add_process(int rank, pid_t pid);
  void set_restarts(const InPodRestarts& restarts);

  bool has_reports() const;
  bool has_restarts() const;
  // Returns the highest step and the newest checkpoint of all ranks.
  ProgressReport newest() const;

  // Returns the responses. status() reads /proc at most once in kProcessesInterval.
  std::string status();
  std::string metrics() const;

 private:
  static constexpr std::chrono::milliseconds kProcessesInterval{500};

  struct Reported {
    ProgressReport values;
    bool is_current = false;  // the present process has reported a step
    SystemTime updated{};
    SystemTime step_at{};  // of the last change
    SystemTime checkpoint_at{};
    int64_t steps = 0;  // completed since the first report, of which some may have been done twice
    double step_seconds = 0;
    int64_t base_step = 0;  // from which step_seconds is measured
    SteadyTime base_time{};
  };

  std::map<int, RankActivity> activities();
  RankStatus status_of(int rank, const Reported& reported) const;
  void count_usage(int reporter, const ProgressReport& report, SteadyTime now);

  const ProgressNode node_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::map<int, Reported> reported_;  // by rank
  std::set<std::string> names_;       // of reported metrics, on all ranks
  int64_t invalid_lines_ = 0;
  std::map<int, pid_t> started_;  // by rank
  InPodRestarts restarts_;
  UsageClock usage_;            // by the reports of the rank that status() returns
  std::mutex processes_mutex_;  // held while /proc is read, so that add() never waits for it
  RankProcesses processes_;
  std::map<int, RankActivity> activities_;
  std::optional<SteadyTime> activities_at_;
};

}  // namespace oarlock::launch
