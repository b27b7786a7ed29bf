#include "operator/api/types.h"

namespace oarlock::api {

std::string to_string(Phase phase) {
  switch (phase) {
    case Phase::kNone:
      return "";
    case Phase::kPending:
      return "Pending";
    case Phase::kRunning:
      return "Running";
    case Phase::kRestarting:
      return "Restarting";
    case Phase::kSuspended:
      return "Suspended";
    case Phase::kComplete:
      return "Complete";
    case Phase::kFailed:
      return "Failed";
  }
  return "";
}

}  // namespace oarlock::api
