// When a job has succeeded.
#pragma once

#include "operator/core/membership.h"

namespace oarlock::control {

// By spec.successPolicy: every pod of the attempt is done, or the one of node rank 0 is.
bool is_success(const Job& job, const Membership& members);

}  // namespace oarlock::control
