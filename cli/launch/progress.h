// Progress of any program: what the ranks of this node report to their launcher, and what it serves from that.
#pragma once

#include <poll.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/kubeflow.h"
#include "cli/launch/line_splitter.h"
#include "cli/launch/process.h"
#include "cli/launch/progress_board.h"
#include "cli/launch/progress_pattern.h"
#include "cli/launch/status_server.h"
#include "cli/launch/supervisor.h"
#include "common/clock.h"
#include "common/contract.h"
#include "common/files.h"

namespace oarlock::launch {

struct ProgressOptions {
  int port = 0;  // OARLOCK_METRICS_PORT
  std::string uid{};
  ProgressNode node{};
  std::vector<int> ranks{};  // of the members of the group
  // A private directory for the FIFOs and the file of OARLOCK_CHECKPOINT_REQUEST; empty: the programs cannot report,
  // except by the pattern.
  std::filesystem::path directory{};
  std::optional<ProgressPattern> pattern{};
};

// The FIFOs of OARLOCK_PROGRESS, the endpoint for Kubeflow's protocol, which writes to the first FIFO, and the pattern
// for lines of output are the inputs. Members are numbers from 0. Not thread-safe.
//
// A program that floods its FIFO costs little: each FIFO is read at most every kReadInterval, then at most
// kMaxReadBytes of it, and of these the last kMaxLines lines are parsed. This object also holds a writing end, so that
// a program neither waits in open(2) nor receives SIGPIPE.
class Progress {
 public:
  static constexpr std::chrono::milliseconds kReadInterval{100};
  static constexpr size_t kMaxReadBytes = size_t{128} << 10;
  static constexpr size_t kMaxLines = 1000;
  // Of each second, so much may be spent on searching lines for the pattern; further lines are not searched.
  static constexpr std::chrono::milliseconds kMaxMatchTime{50};

  Progress(ProgressOptions options, const Clock& clock);

  // Returns the variables that a member receives in addition to `inherited`.
  Environment environment(size_t member, const Environment& inherited) const;

  // Called before a process of the member is started: reads the last reports of the earlier one, and shows the in-pod
  // restarts, so that they precede the phase of the start.
  void before_start(size_t member, const InPodRestarts& restarts);
  // A process of the member was started.
  void add_process(size_t member, pid_t pid);

  // Adds the descriptors whose events read_due() handles.
  void add_descriptors(SteadyTime now, std::vector<pollfd>& out) const;
  // Reads the FIFOs that are due.
  void read_due();
  // Reads the FIFO of a member. Returns whether its present process has made progress. The first step and checkpoint
  // that it reports may be those from which it resumes; further ones are progress, and so is a first one that is newer
  // than all of the earlier processes.
  bool read(size_t member);
  // Searches a line of the output of a member for the pattern.
  void read_output(size_t member, std::string_view line);
  bool reads_output() const { return options_.pattern.has_value(); }

  // Starts the server of /statusz if it is due, which also reports the in-pod restarts.
  void time_passed(const InPodRestarts& restarts);
  // When to call read_due() and time_passed() without an event; nullopt: never.
  std::optional<SteadyTime> deadline() const;

  // All members have ended: reads what is left, and sets the steps of the result.
  void finish(GroupResult& result);

 private:
  struct Count {                       // steps of the program, or the step of its checkpoint
    std::optional<int64_t> base{};     // the lowest of this process, and not more than those of the earlier ones
    std::optional<int64_t> highest{};  // of all processes

    bool advances(std::optional<int64_t> value);
  };
  struct Input {
    FileDescriptor fifo;
    std::filesystem::path path;
    LineSplitter lines{kProgressLineLimit};
    std::optional<SteadyTime> paused_until = {};
    Count step = {};
    Count checkpoint = {};
    bool has_progress = false;
  };

  void open_fifo(Input& input, size_t member) const;
  std::filesystem::path request_file() const { return options_.directory / "checkpoint-request"; }
  void write_request(int64_t request) const;
  void add(size_t member, const std::optional<ProgressReport>& report);

  const ProgressOptions options_;
  const Clock& clock_;
  ProgressBoard board_;
  StatusServer server_;
  std::vector<Input> inputs_;  // by member
  std::optional<KubeflowEndpoint> kubeflow_;
  SteadyTime match_budget_until_{};  // until when the time for searching is spent
};

}  // namespace oarlock::launch
