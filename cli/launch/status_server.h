// /statusz and /metrics of a node, which its launcher serves in place of the ranks (common/contract.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/launch/progress_board.h"
#include "common/clock.h"
#include "common/status_query.h"
#include "http/server.h"

namespace oarlock::launch {

// Whether a process of this network namespace listens on the port.
bool is_port_in_use(int port);

// Serves GET /statusz and GET /metrics on the metrics port of the node as soon as a rank has reported its progress;
// after an in-pod restart; and otherwise kFirstPatience after a start, so that the state of the processes is known also
// on nodes whose ranks report nothing. Ranks that serve them themselves (oarlock-trainer) take precedence: after each
// start, ranks that have reported nothing have this time to listen on the port, and the server is closed before they
// start again. Once they have listened on it, there is never a server. Not thread-safe.
class StatusServer {
 public:
  static constexpr std::chrono::seconds kPatience{20};
  static constexpr std::chrono::seconds kFirstPatience{60};  // a program that is started for the first time may be slow

  // Called on the server's thread for a request for a checkpoint that counts, with its number. It must not block.
  using OnCheckpointRequest = std::function<void(int64_t request)>;

  // `uid` is that of the job; requests for another one are answered with 404. `board` and `clock` must outlive this
  // object.
  StatusServer(int port, std::string uid, ProgressBoard& board, const Clock& clock, OnCheckpointRequest on_request)
      : port_(port),
        uid_(std::move(uid)),
        board_(board),
        on_checkpoint_request_(std::move(on_request)),
        checkpoint_requests_(uid_, clock) {}

  // Called before the ranks are started or restarted.
  void ranks_start(SteadyTime now);
  // Starts the server if it is due. A port that cannot be opened is tried again later.
  void time_passed(SteadyTime now);
  // When to call time_passed(); nullopt: after the next report only.
  std::optional<SteadyTime> deadline() const { return check_at_; }

 private:
  void start();

  int port_;
  std::string uid_;
  ProgressBoard& board_;
  OnCheckpointRequest on_checkpoint_request_;
  CheckpointRequests checkpoint_requests_;
  bool is_of_ranks_ = false;
  bool has_reports_ = false;
  std::optional<SteadyTime> check_at_;
  SteadyTime open_at_{};  // without reports and restarts
  std::unique_ptr<HttpServer> server_;
};

}  // namespace oarlock::launch
