// Rendezvous of all ranks at rank 0's TCPStore. Retries, deadline and diagnosis are implemented here rather than by
// LibTorch, because a host name may not exist yet and a rank that never arrives must be named.
//
// Keys in the store: oarlock/master (the job and the settings of rank 0), oarlock/claim/<r> (number of processes that
// claim rank r), oarlock/arrival/<r> (the process that claimed it first), oarlock/arrived (number of ranks),
// oarlock/full ("full" or "failed"), oarlock/go (the outcome).
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/error.h"
#include "common/log_field.h"
#include "common/stop_flag.h"
#include "ddp/agreement.h"

namespace oarlock {

// Reports to people why the ranks are not connected yet, a few seconds apart: a message, and its details by name.
// Called on the thread of the rendezvous. May be empty.
using ConnectReport = std::function<void(std::string_view message, LogFields details)>;

struct RendezvousOptions {
  int rank = 0;
  int world_size = 1;
  std::string master_addr;
  int master_port = 0;
  std::string uid;  // ranks of another uid or attempt are rejected
  int attempt = 0;
  std::chrono::milliseconds timeout{300'000};
  std::string master_fallback;  // used if master_addr does not resolve; may be empty
  std::string device;           // "cpu" or "cuda"; must be the same on all ranks
  // The rendezvous is repeated after a stop (docs/recovery.md), so the stop must take effect quickly: blocking calls
  // are abandoned after kRegroupStopGrace, and rank 0 does not wait until the other ranks have read the reason.
  bool is_repeatable = false;
  bool has_lost_gpu = false;  // `device` is "cpu" because a GPU or its driver failed
  AgreedValues settings{};    // must be the same on all ranks
};

inline constexpr std::chrono::milliseconds kRegroupStopGrace{150};

struct RendezvousResult {
  c10::intrusive_ptr<c10d::Store> store;  // served by rank 0; unusable once rank 0 exits
  std::string address;                    // numeric address of this rank's interface that reaches the other ranks
};

// Blocks until all ranks have arrived, the deadline has passed, or about two seconds (is_repeatable: 0.2 s) after
// `stop` was raised. A call that still blocks at the end is abandoned on its thread, which shares `stop`; `clock` must
// exist as long as the process.
//
// kTempFail: the deadline has passed (the message names the missing ranks, or why the master cannot be reached), the
// port was in use for a minute, or `stop` was raised. A port in use and a master of another job are retried until the
// deadline: an earlier pod or another job on the host's network may release the port. kUnavailable: the port cannot be
// bound. kConfig: the ranks disagree about world size, device or settings, two processes claim the same rank, or the
// master is of a newer attempt. kDeviceFailed: this rank has lost its GPU, and another rank trains on one. kPeerLost:
// rank 0 exited meanwhile, or another rank has lost its GPU.
Result<RendezvousResult> rendezvous(const RendezvousOptions& options, const std::shared_ptr<const StopFlag>& stop,
                                    const Clock& clock, const ConnectReport& report = {});

// Both ends of a rank's connection to the master, as seen by the rank.
struct Arrival {
  std::string local_address;   // of the rank
  std::string master_address;  // of the master
};

// The address at which the other ranks reach rank 0. `arrivals` are those of ranks 1 and up; an arrival from another
// host takes precedence over one over loopback. Pure.
std::string master_address_from(std::span<const Arrival> arrivals);

// The address for the rank's own listening socket, given the result of master_address_from(). A rank that arrived over
// loopback shares the master's host, and therefore its address. Pure.
std::string own_address_from(const Arrival& own, const std::string& master_address);

}  // namespace oarlock
