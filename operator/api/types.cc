#include "operator/api/types.h"

#include <algorithm>

namespace oarlock::api {
namespace {

template <typename Enum>
using Pair = std::pair<std::string_view, Enum>;

constexpr Pair<FailureAction> kFailureActions[] = {{"Restart", FailureAction::kRestart},
                                                   {"RestartFree", FailureAction::kRestartFree},
                                                   {"Fail", FailureAction::kFail},
                                                   {"Ignore", FailureAction::kIgnore}};
constexpr Pair<ExitCodeOperator> kExitCodeOperators[] = {{"In", ExitCodeOperator::kIn},
                                                         {"NotIn", ExitCodeOperator::kNotIn}};
constexpr Pair<CleanPodPolicy> kCleanPodPolicies[] = {
    {"Running", CleanPodPolicy::kRunning}, {"All", CleanPodPolicy::kAll}, {"None", CleanPodPolicy::kNone}};
constexpr Pair<SuccessPolicy> kSuccessPolicies[] = {{"AllRanks", SuccessPolicy::kAllRanks},
                                                    {"Rank0", SuccessPolicy::kRank0}};
constexpr Pair<Phase> kPhases[] = {{"Pending", Phase::kPending},     {"Running", Phase::kRunning},
                                   {"Stalled", Phase::kStalled},     {"Restarting", Phase::kRestarting},
                                   {"Suspended", Phase::kSuspended}, {"Complete", Phase::kComplete},
                                   {"Failed", Phase::kFailed}};

}  // namespace

Names<FailureAction> failure_action_names() { return kFailureActions; }
Names<ExitCodeOperator> exit_code_operator_names() { return kExitCodeOperators; }
Names<CleanPodPolicy> clean_pod_policy_names() { return kCleanPodPolicies; }
Names<SuccessPolicy> success_policy_names() { return kSuccessPolicies; }
Names<Phase> phase_names() { return kPhases; }

bool is_own_condition(std::string_view type) {
  return is_phase_name(type) || type == kConditionUnreadable || type == kConditionUnknownFields ||
         type == kConditionCheckpointsNotKept;
}

bool is_phase_name(std::string_view name) {
  return std::ranges::any_of(kPhases, [&](const auto& phase) { return phase.first == name; });
}

std::string to_string(Phase phase) {
  for (const auto& [name, candidate] : kPhases) {
    if (candidate == phase) return std::string(name);
  }
  return "";
}

}  // namespace oarlock::api
