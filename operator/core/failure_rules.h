// failurePolicy.rules applied to one pod that failed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/core/model.h"

namespace oarlock::control {

struct RuleMatch {
  size_t rule = 0;  // index into failurePolicy.rules
  api::FailureAction action = api::FailureAction::kRestart;
};

// What the rules may ask of a failed pod.
struct FailedPod {
  std::optional<int> exit_code;      // of the trainer container
  std::vector<std::string> reasons;  // of the pod, of the container, and as status.attempts would show it
  bool is_disrupted = false;         // condition DisruptionTarget is true
};

// The first rule that matches. Exit code 76 says only that another rank was lost, so it must be named to match.
std::optional<RuleMatch> match_rule(const api::FailurePolicy& policy, const FailedPod& pod);

}  // namespace oarlock::control
