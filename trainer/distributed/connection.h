// This rank's connection to all others: rendezvous, process group, and the peer watch beside it.
#pragma once

#include <memory>
#include <string>

#include "trainer/config/distributed.h"
#include "trainer/distributed/collective_watch.h"
#include "trainer/distributed/peer_watch.h"
#include "trainer/distributed/process_group.h"
#include "trainer/distributed/rendezvous.h"

namespace oarlock {

struct BackendChoice {
  bool nccl = false;
  std::string warning;  // what was asked for and is not so; empty: nothing to say
};
// Auto: NCCL for CUDA devices where the build has it, else Gloo. NCCL that was asked for and cannot be had is kConfig
// or kUnavailable, or with Fallback::kCpu Gloo and a warning. Pure.
Result<BackendChoice> choose_backend(const DistributedConfig& config, bool cuda_device, bool nccl_in_build);

struct Connection {
  c10::intrusive_ptr<c10d::Store> store;  // null in a world of one, as the watch
  RankGroup group;
  std::unique_ptr<PeerWatch> watch;
  std::unique_ptr<CollectiveWatch> collectives;  // of NCCL, else null
};

struct ConnectionOptions {
  RendezvousOptions rendezvous;  // its device and timeout are set here
  DistributedConfig config;
  at::Device device = at::kCPU;
};

// All ranks call it; it returns when they are connected. Fails as meet() and choose_backend(); throws what the backend
// throws. `activity` is what the others are told when they ask, on a thread of the watch; its `collective` is set here.
Result<Connection> connect_ranks(const ConnectionOptions& options, PeerWatch::ActivitySource activity,
                                 const StopFlag& stop, const Clock& clock, const Logger& logger);

// Before this rank ends with `error`: where another rank was lost, asks the others and puts the diagnosis before the
// message; else tells them what happened here. At most about a second. A null watch changes nothing.
Error explained(const Error& error, PeerWatch* watch);

}  // namespace oarlock
