#include "operator/core/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "operator/core/status.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

constexpr size_t kMaxListedFields = 10;
constexpr size_t kMessageLimit = 1000;

std::string unreadable_message(const Job& job) {
  return sanitize_line(
      fmt::format("{}; the operator ignores the job until the object is changed or an operator that can read it runs",
                  sanitize_line(job.report.problem, kMessageLimit / 2)),
      kMessageLimit);
}

std::string unknown_message(const Job& job) {
  const std::vector<std::string>& all = job.report.unknown;
  const size_t shown = std::min(all.size(), kMaxListedFields);
  std::string text = fmt::format("this version of the operator ignores {}",
                                 fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (all.size() > shown) text += fmt::format(" and {} more", all.size() - shown);
  return sanitize_line(text + "; remove them, or run the version that wrote them", kMessageLimit);
}

Plan patch_conditions(PlanState state, const Job& job, std::vector<api::Condition> conditions) {
  Plan plan = make_plan(state, "the conditions Unreadable or UnknownFields changed");
  api::Status status = job.status;
  status.conditions = std::move(conditions);
  plan.actions.emplace_back(PatchStatus{.status = std::move(status), .conditions_only = true});
  return plan;
}

}  // namespace

std::optional<Plan> report_unreadable(const Observed& observed, const Membership&) {
  const Job& job = observed.job;
  if (job.report.problem.empty()) return std::nullopt;
  const std::string message = unreadable_message(job);
  const EmitEvent warning = make_event(EmitEvent::Type::kWarning, api::kConditionUnreadable, "Ignore", message);
  std::vector<api::Condition> conditions = job.status.conditions;
  Plan plan = make_plan(PlanState::kBlocked, message);
  if (!job.report.has_conditions) {  // a patch would remove the conditions that were not read
    plan.actions.emplace_back(warning);
  } else if (set_condition(conditions, api::kConditionUnreadable, "InvalidObject", message, observed.now)) {
    plan = patch_conditions(PlanState::kBlocked, job, std::move(conditions));
    plan.actions.emplace_back(warning);
  }
  plan.reason = message;
  return plan;
}

std::optional<Plan> report_unknown_fields(const Observed& observed, const Membership&) {
  const Job& job = observed.job;
  const std::string message = job.report.unknown.empty() ? "" : unknown_message(job);
  std::vector<api::Condition> conditions = job.status.conditions;
  const bool was_unreadable = set_condition(conditions, api::kConditionUnreadable, "", "", observed.now);
  const bool has_changed =
      set_condition(conditions, api::kConditionUnknownFields, "NewerVersion", message, observed.now);
  if (!was_unreadable && !has_changed) return std::nullopt;
  Plan plan = patch_conditions(PlanState::kProgress, job, std::move(conditions));
  if (has_changed && !message.empty())
    plan.actions.emplace_back(make_event(EmitEvent::Type::kWarning, api::kConditionUnknownFields, "Ignore", message));
  return plan;
}

}  // namespace oarlock::control
