// Which of the pods, Services and NetworkPolicies belong to the job, and to which of its attempts. Ownership is the uid
// of the controller; attempt and node rank are read from the name, which nobody can change.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/model.h"

namespace oarlock::control {

struct PodIdentity {
  int attempt = 0;
  int node_rank = 0;

  bool operator==(const PodIdentity&) const = default;
};

// From a name as pod_name() makes it; absent for any other name.
std::optional<PodIdentity> identify(const Job& job, std::string_view name);

// Pointers into the Observed that was split.
struct Membership {
  std::vector<const Pod*> current;     // by node rank, spec.nodes of them; null: not there
  std::vector<bool> finished;          // by node rank: status.finishedRanks, with or without a pod
  std::vector<const Pod*> old;         // of earlier attempts, and of ranks beyond spec.nodes
  std::vector<const Pod*> ahead;       // of attempts after status.attempt: the job in the cache is older than its pods
  std::vector<const Pod*> in_the_way;  // have the name of a pod of this attempt but are not the job's
  const Service* service = nullptr;
  const Service* service_in_the_way = nullptr;
  bool wants_network_policy = false;  // Observed::metrics_peers is present
  const NetworkPolicy* network_policy = nullptr;
  const NetworkPolicy* network_policy_in_the_way = nullptr;
};
// All lists are sorted by name, so that the order of Observed does not matter.
Membership split(const Observed& observed);

// A pod of the current attempt is there.
bool has_pods(const Membership& members);

// The node rank is recorded as done in status.finishedRanks of the current attempt.
bool is_finished(const Membership& members, size_t node_rank);

// A pod of the current attempt is not there, and its rank is not recorded as done.
bool lacks_pods(const Membership& members);

// The pod whose /statusz tells the job's progress: node rank 0 of the current attempt while it runs and has an address.
// Null: nobody tells it now.
const Pod* progress_pod(const Membership& members);

// Ended, well or not: the trainer container has ended, or the whole pod has.
bool has_ended(const Pod& pod);
// As far as the exit code says, for whatever reason it ended.
bool has_exit_code_0(const Pod& pod);

// Somebody stops the pod: it is being deleted, it is the target of a disruption, or the kubelet ended it as a whole
// (eviction, shutdown of the node, the pod's own deadline).
bool is_stop_requested(const Pod& pod);

// The trainer ended with exit code 0 (where that is not known, the pod's phase is Succeeded), and the training is
// complete. Many programs exit with 0 on SIGTERM, so exit code 0 of a pod that was asked to stop is evidence only if
// the termination message says Completed, as oarlock-trainer writes it, or if the trainer ended more than
// kClockTolerance before the request.
bool has_succeeded(const Pod& pod);

// The end of a trainer is timed by its node, the request to stop by the API server.
inline constexpr std::chrono::seconds kClockTolerance{10};

}  // namespace oarlock::control
