// Which of the pods and Services belong to the job, and to which of its attempts. Ownership is the uid of the
// controller; attempt and node rank are read from the name, which nobody can change.
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
  std::vector<const Pod*> old;         // of earlier attempts, and of ranks beyond spec.nodes
  std::vector<const Pod*> ahead;       // of attempts after status.attempt: the job in the cache is older than its pods
  std::vector<const Pod*> in_the_way;  // have the name of a pod of this attempt but are not the job's
  const Service* service = nullptr;
  const Service* service_in_the_way = nullptr;
};
// All lists are sorted by name, so that the order of Observed does not matter.
Membership split(const Observed& observed);

// A pod of the current attempt is there.
bool has_pods(const Membership& members);

// A pod of the current attempt is not there.
bool lacks_pods(const Membership& members);

// The pod whose /statusz tells the job's progress: node rank 0 of the current attempt while it runs and has an address.
// Null: nobody tells it now.
const Pod* progress_pod(const Membership& members);

// Ended, well or not: the trainer container has ended, or the whole pod has.
bool has_ended(const Pod& pod);
// The trainer's exit code decides where it is known, else the pod's phase.
bool has_succeeded(const Pod& pod);

}  // namespace oarlock::control
