// When is the job done well?
#pragma once

#include "operator/core/membership.h"

namespace oarlock::control {

// Every node's trainer ended with exit code 0.
bool is_success(const Membership& members);

}  // namespace oarlock::control
