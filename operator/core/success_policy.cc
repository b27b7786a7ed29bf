#include "operator/core/success_policy.h"

#include <algorithm>

namespace oarlock::control {

bool is_success(const Membership& members) {
  return !members.current.empty() && std::all_of(members.current.begin(), members.current.end(),
                                                 [](const Pod* pod) { return pod != nullptr && has_succeeded(*pod); });
}

}  // namespace oarlock::control
