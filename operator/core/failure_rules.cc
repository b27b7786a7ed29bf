#include "operator/core/failure_rules.h"

#include <algorithm>

namespace oarlock::control {
namespace {

template <typename List, typename Value>
bool holds(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool matches(const api::ExitCodeMatch& wanted, int exit_code) {
  const bool is_listed = holds(wanted.values, static_cast<int64_t>(exit_code));
  if (wanted.operation == api::ExitCodeOperator::kIn) return is_listed;
  return !is_listed && exit_code != to_int(ExitCode::kPeerLost);
}

bool matches(const api::FailureRule& rule, const FailedPod& pod) {
  if (rule.on_exit_codes) return pod.exit_code && matches(*rule.on_exit_codes, *pod.exit_code);
  const bool has_reason = std::any_of(pod.reasons.begin(), pod.reasons.end(),
                                      [&](const std::string& reason) { return holds(rule.on_pod_reasons, reason); });
  // The API has no other condition than DisruptionTarget=True.
  return has_reason || (!rule.on_pod_conditions.empty() && pod.is_disrupted);
}

}  // namespace

std::optional<RuleMatch> match_rule(const api::FailurePolicy& policy, const FailedPod& pod) {
  for (size_t i = 0; i < policy.rules.size(); ++i) {
    if (matches(policy.rules[i], pod)) return RuleMatch{i, policy.rules[i].action};
  }
  return std::nullopt;
}

}  // namespace oarlock::control
