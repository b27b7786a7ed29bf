// The measurement of a preflight round: this node sends to one node, and receives from another, over TCP, at the same
// time as all nodes do. A round measures the time of round trips, without other traffic, or the bandwidth.
#pragma once

#include <poll.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/host_lookup.h"
#include "cli/launch/preflight_messages.h"
#include "common/clock.h"
#include "common/files.h"

namespace oarlock::launch {

// Waits until a descriptor is ready or the time has come. Returns false if the launcher received a signal that stops
// it: the measurement then ends.
using PreflightWait = std::function<bool(std::vector<pollfd>& fds, SteadyTime until)>;

struct LinkOptions {
  PreflightRound round;
  SocketAddress to;  // of the node to send to
  std::string token;
  int listener = -1;  // a non-blocking socket, which accepts the connection of the node that sends to this one
};

// Returns the value of PreflightResult: the median of several round trips to the other node, or the bandwidth at which
// this node received in half a second. Absent without a connection, or after a signal.
std::optional<double> measure_link(const LinkOptions& options, const PreflightWait& wait, const Clock& clock);

}  // namespace oarlock::launch
