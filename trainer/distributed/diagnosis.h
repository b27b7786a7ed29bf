// Who kept a collective from ending, from what the ranks say of themselves. Pure and LibTorch-free.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace oarlock {

// What a rank is doing.
struct Activity {
  std::string phase;       // kPhaseNames of the telemetry
  int64_t step = 0;        // optimizer steps done
  int64_t collective = 0;  // collectives started: ranks call the same ones in the same order

  bool operator==(const Activity&) const = default;
};

struct PeerReport {
  enum class State {
    kAnswers,
    kSilent,  // connected, but no answer in time: stopped, or its host is cut off
    kGone     // nobody is there any more
  };
  int rank = 0;
  State state = State::kAnswers;
  Activity activity{};  // of one that answers
};

// One line: the ranks that did not arrive with what they do instead, and where this rank waits. `peers` are the others.
std::string diagnose(const Activity& own, std::span<const PeerReport> peers);

}  // namespace oarlock
