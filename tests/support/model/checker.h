// Breadth-first search of all states that one job can reach: events of the cluster, actions of the operator, crashes of
// the operator between any two actions, and plans from stale caches, interleaved in every order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "operator/core/reconcile.h"
#include "tests/support/model/moves.h"
#include "tests/support/sim_cluster.h"

namespace oarlock::test {

struct ModelOptions {
  control::Job job;
  std::vector<std::string> foreign_pods;     // pods of another owner, which exist from the start
  std::optional<std::string> metrics_peers;  // present: jobs get a NetworkPolicy
  bool gangs = false;                        // native PodGroups are served
  int cluster_nodes = 0;                     // Objects::nodes
  std::optional<int64_t> profile{};          // Objects::profile
  MoveOptions moves{};
  int faults = 2;               // maximum on one path: failures, disruptions, edits, deletions, stale caches
  bool old_views = true;        // each watch may be stale, also after a restart of the operator
  bool starts_running = false;  // the search begins when all pods run
  size_t max_states = 3000000;  // limit of the search; if it is reached, check_worlds() is skipped
};

struct ModelResult {
  size_t states = 0;  // distinct states of the cluster, the operator and its caches
  size_t worlds = 0;  // distinct states of the cluster among them
  size_t transitions = 0;
  bool is_complete = false;  // all reachable states were searched
  bool saw_complete = false;
  bool saw_failed = false;
  bool saw_suspended = false;
  bool saw_stalled = false;
  bool saw_deleted = false;
  bool saw_shrunk = false;        // the number of active nodes decreased in place
  bool saw_grown = false;         // it increased in place
  bool saw_disconnected = false;  // a disconnected launcher's pod was replaced
  int most_restarts = 0;
  std::string violation;  // the violated invariant and its shortest trace, one step per line; empty if there is none
};

ModelResult check_model(const ModelOptions& options, std::span<const control::Policy> policies);

}  // namespace oarlock::test
