// All ranks meet at rank 0's TCPStore. The retries, the deadline and the diagnosis are ours: a host name may not exist
// yet, and a rank that never comes must be named.
//
// Keys in the store: oarlock/master (what rank 0 expects), oarlock/claim/<r> (counts who says to be rank r),
// oarlock/arrival/<r> (who that is), oarlock/arrived (count), oarlock/full (all there, or failed), oarlock/go
// (verdict).
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <span>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "common/log.h"
#include "trainer/process/signals.h"

namespace oarlock {

struct RendezvousOptions {
  int rank = 0;
  int world_size = 1;
  std::string master_addr;
  int master_port = 0;
  std::string uid;  // ranks of another uid or attempt are refused
  int attempt = 0;
  std::chrono::milliseconds timeout{300'000};
  std::string master_fallback;  // tried where master_addr does not resolve; may be empty
  std::string device;           // "cpu" or "cuda": must be the same on all ranks
};

struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;  // rank 0's serves it: the store ends with rank 0
  std::string address;                    // numeric, of this rank's interface that reaches the others
};

// Returns when all ranks are there. Blocks until the deadline at most, or about two seconds after `stop` was raised,
// whatever it waits for. `stop` and `clock` must live as long as the process: a call that still blocks then is
// abandoned on its thread.
// kTempFail: the deadline has passed (who is missing, or why the master cannot be reached), the port has been in use
// for a minute, or `stop`. A port in use, and a master of another job, are waited out: both may be what an earlier pod
// or another job leaves on the host's network. kUnavailable: the port cannot be had. kConfig: the ranks disagree about
// world size or device, two are the same rank, or the master is of a newer attempt. kPeerLost: rank 0 went away
// meanwhile.
Result<Meeting> meet(const RendezvousOptions& options, const StopFlag& stop, const Clock& clock, const Logger& logger);

// How a rank and the master saw each other's end of their connection.
struct Arrival {
  std::string local_address;   // of the rank
  std::string master_address;  // of the master, as this rank reached it
};

// The address at which the other ranks reach rank 0. `arrivals` are those of ranks 1 and up; one that came from another
// host knows better than one that came over loopback. Pure.
std::string master_address_from(std::span<const Arrival> arrivals);

// The address for the rank's own listening socket, given the master's from above: over loopback the rank shares the
// master's host, and so its address. Pure.
std::string own_address_from(const Arrival& own, const std::string& master_address);

}  // namespace oarlock
