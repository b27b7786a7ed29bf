// Which pods are deleted, and when.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "operator/core/membership.h"

namespace oarlock::control {

struct Deletions {
  std::vector<Action> actions;
  std::optional<std::chrono::seconds> look_again;  // a pod that is just ending is left to itself until then
};

// Pods of attempts that are over. Those that ended in the attempt just before are kept for their logs.
Deletions clear_old(const Observed& observed, const Membership& members);

// Every pod that still lives, of any attempt. `since` is when it had to stop.
Deletions stop_all(const Observed& observed, const Membership& members, const char* reason, SystemTime since);

// The pods of a job that has ended at `since`, as spec.cleanPodPolicy has it, and, once no pod runs any more, its
// Service, and once no pod is left that accepts connections, its NetworkPolicy; only None keeps them. A pod that ends
// at this moment keeps its log, unless that is not wanted.
Deletions clear_ended(const Observed& observed, const Membership& members, SystemTime since);

}  // namespace oarlock::control
