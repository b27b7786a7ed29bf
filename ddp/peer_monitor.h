// Determines which rank prevented a collective from finishing. Ranks report their activity to each other over a channel
// that is independent of the process group, of rank 0 and of its store. LibTorch-free.
//
// Protocol: one TCP connection per request, one line in each direction. "?" is answered with
// {"phase", "step", "collective"}. "!<text>" has no answer: the text is the final message of a rank that exits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

struct Listener;  // ddp/socket.h

// The current activity of a rank.
struct PeerActivity {
  std::string phase;       // one of kPhaseNames (trainer/telemetry/progress.h)
  int64_t step = 0;        // optimizer steps done; negative: unknown
  int64_t collective = 0;  // collectives started; all ranks start the same collectives in the same order

  bool operator==(const PeerActivity&) const = default;
};

struct PeerReport {
  enum class State {
    kAnswers,
    kSilent,  // the connection was accepted, but no answer came in time: the process is stopped, or its host is cut off
    kGone     // the connection was refused or broke
  };
  int rank = 0;
  State state = State::kAnswers;
  PeerActivity activity{};  // of a rank that answers
};

// One line that names the ranks that did not arrive and their activity, and the activity of this rank. `peers` excludes
// this rank. Pure.
std::string diagnose(const PeerActivity& own, std::span<const PeerReport> peers);

struct PeerAddress {
  std::string host;  // numeric
  int port = 0;
};

// Answers requests of the other ranks on a dedicated thread and port. Sends nothing unless one of the methods below is
// called.
class PeerMonitor {
 public:
  // Called on the monitor's thread.
  using ActivitySource = std::function<PeerActivity()>;

  // Starts to answer. kUnavailable if no port is free.
  static Result<std::unique_ptr<PeerMonitor>> start(int rank, ActivitySource activity);
  ~PeerMonitor();
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  int port() const { return port_; }

  // Sets the addresses of all ranks, indexed by rank and including this one. Must precede diagnose_peers() and
  // report_exit().
  void set_peers(std::vector<PeerAddress> peers) { peers_ = std::move(peers); }

  // Queries all ranks and returns the diagnosis, which it also sends to them. The final message of a rank that exited
  // before comes first, because it names the cause. Takes some milliseconds, or `timeout` if a rank does not answer.
  std::string diagnose_peers(std::chrono::milliseconds timeout);

  // Sends this rank's final message to the others, so that they can report why it exited. Best effort; returns after at
  // most `timeout`.
  void report_exit(const std::string& message, std::chrono::milliseconds timeout) const;

 private:
  PeerMonitor(int rank, ActivitySource activity, Listener listener);
  void serve();
  void answer(const FileDescriptor& connection);

  int rank_;
  ActivitySource activity_;
  FileDescriptor listener_;
  FileDescriptor stop_;  // an eventfd that becomes readable when the monitor stops
  int port_;
  std::vector<PeerAddress> peers_;
  std::mutex mutex_;
  std::optional<std::string> final_message_;  // the first one received from another rank; guarded by mutex_
  std::thread thread_;
};

}  // namespace oarlock
