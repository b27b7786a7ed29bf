// The preflight of a group (docs/guides/preflight.md): before the ranks start, the launchers of all nodes check their
// nodes and the network between them, and name the nodes that fail.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "cli/launch/preflight_checks.h"
#include "cli/launch/preflight_judgement.h"
#include "cli/launch/process.h"
#include "common/clock.h"
#include "common/error.h"

namespace oarlock::launch {

// The value of --preflight: settings that are separated by commas, all of which are optional.
struct PreflightSettings {
  std::chrono::seconds timeout{300};  // timeout=SECONDS: until all launchers must have connected to node rank 0
  int devices = 0;                    // devices=N: GPUs of each node
  PreflightLimits limits = {};        // bandwidth=MBPS and latency=MILLISECONDS
  int64_t min_shared_memory_mib = 0;  // shm=MIB
};

// Fails with kUsage.
Result<PreflightSettings> parse_preflight(std::string_view text);

struct PreflightOptions {
  PreflightSettings settings = {};
  NodeChecks checks = {};  // those of the settings
  int nodes = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  std::string token;           // that all launchers share; with several nodes
  bool is_local_only = false;  // the other nodes already run
};

// Blocks until the preflight is complete, or a signal that stops the launcher has arrived. Call it from a process with
// one thread. Fails if node rank 0 cannot listen on its port.
Result<PreflightOutcome> run_preflight(const PreflightOptions& options, const SignalSource& signals,
                                       const Clock& clock);

}  // namespace oarlock::launch
