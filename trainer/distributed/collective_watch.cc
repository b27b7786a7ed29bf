#include "trainer/distributed/collective_watch.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/distributed/failure.h"

namespace oarlock {
namespace {

double seconds_of(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

std::optional<Error> verdict(GroupState state, std::chrono::milliseconds timeout, const std::string& device_fault) {
  switch (state) {
    case GroupState::kWorks:
      return std::nullopt;
    case GroupState::kTimedOut:
      return late_peer(fmt::format("no end after {} s", seconds_of(timeout)));
    case GroupState::kBroken:
      if (!device_fault.empty()) return to_error("CUDA error: " + device_fault, FaultOrigin::kCollective);
      return lost_peer("the connection broke");
  }
  return std::nullopt;
}

std::optional<Error> connect_verdict(std::chrono::milliseconds elapsed, std::chrono::milliseconds timeout, int signal) {
  if (signal != 0) {
    return Error{ExitCode::kTempFail, fmt::format("interrupted by signal {} while the ranks were connecting", signal)};
  }
  if (elapsed <= timeout) return std::nullopt;
  return Error{ExitCode::kPeerLost,
               fmt::format("the ranks did not connect within {} s: another rank was lost or cannot be reached; see the "
                           "other ranks' last messages, or raise distributed.rendezvous_timeout_seconds",
                           seconds_of(timeout))};
}

CollectiveWatch::CollectiveWatch(Look look, std::chrono::milliseconds timeout, std::chrono::milliseconds interval,
                                 std::function<std::string()> fault)
    : watchdog_(
          [look = std::move(look), timeout, fault = std::move(fault)] {
            const GroupState state = look();
            return verdict(state, timeout, state == GroupState::kBroken && fault ? fault() : "");
          },
          interval) {}

}  // namespace oarlock
