#include "operator/core/disruption.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>

namespace oarlock::control {
namespace {

using api::Disruption;

// Absent on purpose: DeletionCandidateOfClusterAutoscaler, which is withdrawn more often than not, and
// node.kubernetes.io/out-of-service, whose node has stopped already. A cordon has its own field (projection.cc).
constexpr std::string_view kTaints[] = {
    "karpenter.sh/disrupted",                       // Karpenter 1
    "karpenter.sh/disruption",                      // Karpenter before 1
    "ToBeDeletedByClusterAutoscaler",               // Cluster Autoscaler
    "cloud.google.com/impending-node-termination",  // GKE
    "aws-node-termination-handler/spot-itn",        // AWS Node Termination Handler
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "remediator.kubernetes.azure.com/unschedulable",  // AKS
};

// Of AKS's node problem detector: VMEventScheduled, and the names of the events that it had before.
constexpr std::string_view kConditions[] = {"VMEventScheduled", "PreemptScheduled", "TerminateScheduled",
                                            "RedeployScheduled", "RebootScheduled"};

// A warning that is withdrawn counts for this long, so that a node that flaps causes few writes and requests.
constexpr std::chrono::minutes kMinDuration{10};

// Whether a pod runs, and is not being stopped.
bool runs(const Pod* pod) {
  return pod != nullptr && pod->phase == PodPhase::kRunning && !pod->deleting && !has_ended(*pod);
}

// Why the node of a pod is about to be drained or removed; empty if that is not known.
std::string warning_of(const Observed& observed, const Pod& pod) {
  if (const auto found = observed.node_warnings.find(pod.node_name); found != observed.node_warnings.end())
    return found->second;
  return pod.disruption.empty() ? "" : fmt::format("condition DisruptionTarget of a pod: {}", pod.disruption);
}

}  // namespace

bool announces_disruption(std::string_view taint) { return std::ranges::find(kTaints, taint) != std::end(kTaints); }

bool is_disruption_condition(std::string_view type) {
  return std::ranges::find(kConditions, type) != std::end(kConditions);
}

void refresh_disruption(const Observed& observed, const Membership& members, api::Status& status) {
  const Disruption before = status.disruption.value_or(Disruption{});
  status.disruption.reset();
  if (!api::is_running(status.phase)) return;
  Disruption next{.nodes = {}, .reason = before.reason, .request_time = before.request_time};
  bool is_new = false;
  const bool keeps_known = observed.are_node_warnings_unknown || observed.now < before.request_time + kMinDuration;
  // Nodes that are known come first, so that the limit does not turn them into new ones.
  for (const bool adds_known : {true, false}) {
    for (const Pod* pod : members.current) {
      if (!runs(pod) || std::ranges::find(next.nodes, pod->node_name) != next.nodes.end()) continue;
      const bool is_known = std::ranges::find(before.nodes, pod->node_name) != before.nodes.end();
      const std::string warning = warning_of(observed, *pod);
      if (warning.empty() && !(is_known && keeps_known)) continue;
      if (is_known != adds_known || next.nodes.size() == api::kMaxDisruptedNodes) continue;
      next.nodes.push_back(pod->node_name);
      if (is_known) continue;
      if (!is_new) next.reason = fmt::format("{} ({})", pod->node_name, warning);
      is_new = true;
    }
  }
  if (next.nodes.empty()) return;
  if (is_new) next.request_time = std::chrono::floor<std::chrono::seconds>(observed.now);
  status.disruption = std::move(next);
}

std::optional<int64_t> checkpoint_request(const api::Status& status) {
  if (!status.disruption) return std::nullopt;
  return std::chrono::floor<std::chrono::seconds>(status.disruption->request_time.time_since_epoch()).count();
}

std::vector<Action> disruption_events(const api::Status& before, const api::Status& next) {
  if (!next.disruption || checkpoint_request(before) == checkpoint_request(next)) return {};
  return {make_event(
      EmitEvent::Type::kNormal, "CheckpointRequested", "RequestCheckpoint",
      fmt::format("node {} is about to be drained or removed: a checkpoint is requested", next.disruption->reason))};
}

}  // namespace oarlock::control
