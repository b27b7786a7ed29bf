// Breadth-first search over all that can happen to one job: what the cluster does, what the operator does, its death
// between any two actions, and plans made from an old view, interleaved in every order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "operator/core/policy.h"
#include "tests/support/sim_cluster.h"

namespace oarlock::test {

struct ModelOptions {
  control::Job job;
  std::vector<std::string> foreign_pods;     // of somebody else, there from the start
  std::optional<std::string> metrics_peers;  // jobs get a NetworkPolicy
  std::vector<int> exit_codes = {1};         // of failures
  int faults = 2;                            // on one path: failures, disruptions, edits, deletions, old views
  bool steps = false;                        // rank 0 tells its progress
  bool old_views = true;                     // each watch may show the past, also after an operator was started anew
  size_t max_states = 3000000;               // the search ends here; then the worlds are not judged as a whole
};

struct ModelResult {
  size_t states = 0;  // distinct, with the operator's state and old views
  size_t worlds = 0;  // distinct states of the cluster among them
  size_t transitions = 0;
  bool is_complete = false;  // every reachable state was seen
  bool saw_complete = false;
  bool saw_failed = false;
  bool saw_suspended = false;
  bool saw_stalled = false;
  bool saw_deleted = false;
  int most_restarts = 0;
  std::string violation;  // what does not hold, and the shortest way there, a line for each step; empty: all holds
};

ModelResult check_model(const ModelOptions& options, std::span<const control::Policy> policies);

}  // namespace oarlock::test
