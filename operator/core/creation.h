// What is missing of a job's objects, and who has their names.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/membership.h"

namespace oarlock::control {

// Pods of an attempt are made in these phases only, the first ones while there is no status yet: one that goes missing
// later is a failure.
bool may_create_pods(api::Phase phase);

// Whether the Service, the NetworkPolicy or a pod of status.attempt has to be made, now or later.
bool lacks_objects(const Job& job, const Membership& members);

// The names that are needed and that somebody else's object has; empty: none.
std::string names_in_the_way(const Membership& members);

struct Creations {
  std::vector<Action> actions;
  std::optional<std::chrono::seconds> look_again;  // the pods have to wait until then
};
// What is missing of the NetworkPolicy, the Service and the pods of status.attempt. A policy that differs from the
// desired one is replaced. One of another owner is left alone. REQUIRES: the spec is valid, no name is in the way.
Creations creations(const Observed& observed, const Membership& members);

}  // namespace oarlock::control
