#include "operator/core/model.h"

namespace oarlock::control {

std::string to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kProgress:
      return "Progress";
    case Verdict::kWait:
      return "Wait";
    case Verdict::kComplete:
      return "Complete";
    case Verdict::kBlocked:
      return "Blocked";
  }
  return "";
}

}  // namespace oarlock::control
