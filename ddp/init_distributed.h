// Connects the ranks of the job: rendezvous, process group, peer monitor and watchdog.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "ddp/peer_monitor.h"
#include "ddp/process_group.h"
#include "ddp/rendezvous.h"
#include "ddp/watchdog.h"

namespace oarlock {

// The connected ranks. With one rank all pointers are null.
struct DistributedContext {
  c10::intrusive_ptr<c10d::Store> store;
  ProcessGroup group;
  std::unique_ptr<PeerMonitor> peers;
  // Null unless the backend is NCCL or DistributedOptions::should_leave is set.
  std::unique_ptr<Watchdog> collective_watchdog;
};

struct DistributedOptions {
  RendezvousOptions rendezvous;  // `device` is overwritten
  at::Device device = at::kCPU;
  bool nccl = false;                           // the backend; otherwise Gloo
  std::chrono::milliseconds timeout{600'000};  // of one collective
  // If set, the watchdog calls ProcessGroup::leave() when this returns true or when it detects that a rank was lost, so
  // that the training thread returns from its wait with an error. Otherwise, the loss of a rank ends the process.
  // Called on the watchdog thread ten times a second.
  std::function<bool()> should_leave{};
  // Ends the rendezvous only; null: the `stop` of init_distributed().
  std::shared_ptr<const StopFlag> rendezvous_stop{};
};

// Called by all ranks; returns when they are connected. Fails as rendezvous() and make_nccl_group() do, and throws the
// exceptions of the backend. The peer monitor calls `activity` on its own thread to report this rank's activity to
// the other ranks; the field `collective` is filled in here. `stop` and `clock` must exist as long as the process.
Result<DistributedContext> init_distributed(const DistributedOptions& options, PeerMonitor::ActivitySource activity,
                                            const StopFlag& stop, const Clock& clock, const ConnectReport& report = {});

// Called before this rank exits with `error`. If another rank was lost, returns the error with the diagnosis of the
// peer monitor in front of its message; otherwise reports the error to the other ranks. Takes at most about a second.
// Returns `error` unchanged if `peers` is null.
Error with_peer_diagnosis(const Error& error, PeerMonitor* peers);

}  // namespace oarlock
