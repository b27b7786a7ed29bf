// Connects the ranks of the job: rendezvous, process group, peer monitor and watchdog.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trainer/config/distributed.h"
#include "trainer/distributed/peer_monitor.h"
#include "trainer/distributed/process_group.h"
#include "trainer/distributed/rendezvous.h"
#include "trainer/distributed/watchdog.h"

namespace oarlock {

struct BackendChoice {
  bool nccl = false;    // otherwise Gloo
  std::string warning;  // set if the configured backend was replaced
};

// Selects NCCL for CUDA devices if the build includes it, otherwise Gloo. If the configuration requires NCCL and it is
// not available, fails with kConfig or kUnavailable, or with Fallback::kCpu selects Gloo with a warning. Pure.
Result<BackendChoice> choose_backend(const DistributedConfig& config, bool cuda_device, bool nccl_in_build);

// The connected ranks. With one rank all pointers are null.
struct DistributedContext {
  c10::intrusive_ptr<c10d::Store> store;
  ProcessGroup group;
  std::unique_ptr<PeerMonitor> peers;
  // Null unless the backend is NCCL or DistributedOptions::should_leave is set.
  std::unique_ptr<Watchdog> collective_watchdog;
};

struct DistributedOptions {
  RendezvousOptions rendezvous;  // `device` and `timeout` are overwritten
  DistributedConfig config;
  at::Device device = at::kCPU;
  // If set, the watchdog calls ProcessGroup::leave() when this returns true or when it detects that a rank was lost, so
  // that the training thread returns from its wait with an error. Otherwise, the loss of a rank ends the process.
  // Called on the watchdog thread ten times a second.
  std::function<bool()> should_leave{};
  // Ends the rendezvous only; null: the `stop` of init_distributed().
  std::shared_ptr<const StopFlag> rendezvous_stop{};
};

// Called by all ranks; returns when they are connected. Fails as rendezvous() and choose_backend() do, and throws
// the exceptions of the backend. The peer monitor calls `activity` on its own thread to report this rank's activity to
// the other ranks; the field `collective` is filled in here. `stop` and `clock` must exist as long as the process.
Result<DistributedContext> init_distributed(const DistributedOptions& options, PeerMonitor::ActivitySource activity,
                                            const StopFlag& stop, const Clock& clock, const Logger& logger);

// Called before this rank exits with `error`. If another rank was lost, returns the error with the diagnosis of the
// peer monitor in front of its message; otherwise reports the error to the other ranks. Takes at most about a second.
// Returns `error` unchanged if `peers` is null.
Error with_peer_diagnosis(const Error& error, PeerMonitor* peers);

}  // namespace oarlock
