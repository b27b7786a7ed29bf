#include "operator/core/events.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/validate.h"
#include "common/text.h"
#include "operator/core/desired.h"
#include "operator/core/elastic.h"
#include "operator/core/queue.h"
#include "operator/core/reconcile.h"
#include "operator/core/status.h"

namespace oarlock::control {

using api::Phase;

namespace {

// The event of restarts in the pods that were reported since the last status.
std::vector<Action> in_pod_restart_events(const api::Status& before, const api::Status& next) {
  const api::InPodRestarts was = before.in_pod_restarts.value_or(api::InPodRestarts{});
  if (!next.in_pod_restarts || next.in_pod_restarts->total <= was.total) return {};
  const api::InPodRestarts& is = *next.in_pod_restarts;
  const int64_t count = is.total - was.total;
  return {make_event(
      EmitEvent::Type::kWarning, "RestartedInPods", "RestartProcesses",
      fmt::format("all processes were started again in their pods{}, {:.3g} s: {}",
                  count > 1 ? fmt::format(", {} times", count) : "", is.seconds - was.seconds, is.last_reason))};
}

}  // namespace

std::vector<Action> start_events(const Job& job) {
  const std::string pods = counted(job.spec.nodes, "pod");
  std::vector<Action> out = {
      job.status.queue
          ? make_event(EmitEvent::Type::kNormal, kQueued, "CreateWorkload",
                       fmt::format("requesting quota for {} from the queue {}", pods, job.status.queue->name))
          : make_event(EmitEvent::Type::kNormal, "Started", "CreatePods", "starting " + pods)};
  const std::vector<std::string> overridden = overridden_variables(job);
  if (!overridden.empty()) {
    out.emplace_back(make_event(EmitEvent::Type::kWarning, "EnvironmentOverridden", "CreatePods",
                                fmt::format("the template sets {}; the operator's values of these variables replace "
                                            "those of the template",
                                            fmt::join(overridden, ", "))));
  }
  if (!keeps_checkpoints(job))
    out.emplace_back(
        make_event(EmitEvent::Type::kWarning, api::kConditionCheckpointsNotKept, "CreatePods", kCheckpointsNotKept));
  return out;
}

std::vector<Action> ignored_scale_events(const Job& job) {
  if (job.status.observed_generation == job.metadata.generation || !requests_scale(job)) return {};
  const std::vector<api::FieldProblem> problems = api::validate(job);
  if (problems.empty()) return {};
  return {make_event(EmitEvent::Type::kWarning, kInvalidSpec, "Ignore",
                     fmt::format("the group keeps its {}: {}: {}", counted(job.group_nodes(), "node"),
                                 problems.front().path, problems.front().message))};
}

std::vector<Action> running_events(Phase before, const api::Status& next) {
  if (next.phase == before || !is_running(next.phase)) return {};
  const bool is_stalled = next.phase == Phase::kStalled;
  const char* reason = is_stalled ? "Stalled" : before == Phase::kStalled ? "Progressing" : "Running";
  return {make_event(is_stalled ? EmitEvent::Type::kWarning : EmitEvent::Type::kNormal, reason, "None",
                     find_condition(next, next.phase)->message)};
}

std::vector<Action> recovery_events(const api::Status& before, const api::Status& next) {
  const api::Recoveries was = before.recoveries.value_or(api::Recoveries{});
  std::vector<Action> events = in_pod_restart_events(before, next);
  if (!next.recoveries || next.recoveries->total <= was.total) return events;
  const api::Recoveries& is = *next.recoveries;
  // A group that continues with fewer nodes counts as a recovery without replaced ranks.
  const bool has_shrunk =
      next.elastic && next.elastic->active_nodes.value_or(next.elastic->nodes) < next.elastic->nodes;
  if (has_shrunk && is.last_ranks.empty()) return events;
  const int64_t count = is.total - was.total;
  const bool is_one = !is.last_ranks.empty() && is.last_ranks.find_first_not_of("0123456789") == std::string::npos;
  const std::string many = is.last_ranks.empty() ? "ranks were" : fmt::format("ranks {} were", is.last_ranks);
  events.emplace_back(make_event(
      EmitEvent::Type::kWarning, "Recovered", "RestartRanks",
      fmt::format("{} replaced while the others kept their state; {}0 steps lost, {:.3g} s: {}",
                  is_one ? fmt::format("rank {} was", is.last_ranks) : many,
                  count > 1 ? fmt::format("{} recoveries, ", count) : "", is.seconds - was.seconds, is.last_reason)));
  return events;
}

std::vector<Action> in_place_events(const api::Status& before, const api::Status& next) {
  if (!next.elastic || !next.elastic->active_nodes || next.attempt != before.attempt) return {};
  const int all = next.elastic->nodes;
  const int was = before.elastic ? before.elastic->active_nodes.value_or(all) : all;
  const int is = *next.elastic->active_nodes;
  if (is < was) {
    return {make_event(
        EmitEvent::Type::kWarning, "ShrunkInPlace", "CreatePods",
        fmt::format("{} of {} nodes continue without a restart; the others join them once their pods run", is, all))};
  }
  if (is == was) return {};
  return {make_event(EmitEvent::Type::kNormal, "GrownInPlace", "None",
                     fmt::format("{} of {} nodes train, without a restart", is, all))};
}

}  // namespace oarlock::control
