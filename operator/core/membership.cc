#include "operator/core/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "api/rules.h"
#include "common/contract.h"
#include "operator/core/desired.h"
#include "operator/core/text.h"
#include "operator/core/workload.h"

namespace oarlock::control {
namespace {

// Parses a non-negative decimal number without leading zeros, so that each number has only one spelling.
std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  if (std::to_string(value) != text) return std::nullopt;
  return value;
}

bool has_reason(const Termination& end, std::string_view reason) {
  const std::optional<TerminationMessage> message = termination_message_from_json(end.message);
  return message && message->reason == reason;
}

std::optional<int> attempt_of_group(const Job& job, std::string_view name) {
  const std::string prefix = job.metadata.name + "-";
  return name.starts_with(prefix) ? parse_count(name.substr(prefix.size())) : std::nullopt;
}

// Kueue lets the later of two Workloads take over the quota of the earlier one when it admits it.
void choose_workload(const Observed& observed, Membership& out) {
  if (!observed.workloads) return;
  const Job& job = observed.job;
  std::vector<const Workload*> own;
  for (const Workload& workload : *observed.workloads) {
    // The one that MultiKueue has created for the job has no owner.
    const bool is_prebuilt = workload.owner_uid.empty() && workload.name == prebuilt_workload(job);
    const bool is_owned = workload.owner_uid == job.metadata.uid && workload_slice(job, workload.name);
    if (is_prebuilt || is_owned) own.push_back(&workload);
  }
  std::ranges::sort(own, {}, [&](const Workload* workload) { return *workload_slice(job, workload->name); });
  if (own.empty()) return;
  out.workload = own.front();
  for (const Workload* workload : own) {
    if (out.workload->finished || admits_pods(*workload)) out.workload = workload;
  }
  std::ranges::copy_if(own, std::back_inserter(out.other_workloads),
                       [&](const Workload* workload) { return workload != out.workload; });
}

void sort_by_name(std::vector<const Pod*>& pods) {
  // Names are unique on the API server. The uid makes the order total for any other input.
  std::sort(pods.begin(), pods.end(),
            [](const Pod* a, const Pod* b) { return std::tie(a->name, a->uid) < std::tie(b->name, b->uid); });
}

}  // namespace

std::string pod_group_name(const Job& job, int attempt) { return fmt::format("{}-{}", job.metadata.name, attempt); }

std::optional<PodIdentity> parse_pod_name(const Job& job, std::string_view name) {
  const std::string prefix = job.metadata.name + "-";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::optional<int> attempt = parse_count(name.substr(0, dash));
  const std::optional<int> node_rank = parse_count(name.substr(dash + 1));
  if (!attempt || !node_rank || *attempt > api::rules::kMaxAttempt) return std::nullopt;
  return PodIdentity{*attempt, *node_rank};
}

Membership classify_objects(const Observed& observed) {
  const Job& job = observed.job;
  Membership out;
  out.current.resize(static_cast<size_t>(std::max(job.group_nodes(), 0)));
  const BoxedOptional<api::FinishedRanks>& recorded = job.status.finished_ranks;
  const bool is_present = recorded && recorded->attempt == job.status.attempt;
  out.finished = parse_rank_set(is_present ? recorded->node_ranks : "", out.current.size());
  out.replacements.resize(out.current.size());
  for (const api::Replacement& replacement : job.status.replacements) {
    const auto rank = static_cast<size_t>(replacement.node_rank);
    if (replacement.attempt == job.status.attempt && replacement.node_rank >= 0 && rank < out.current.size())
      out.replacements[rank] = &replacement;
  }
  std::vector<const Pod*> pods;
  pods.reserve(observed.pods.size());
  for (const Pod& pod : observed.pods) pods.push_back(&pod);
  sort_by_name(pods);
  for (const Pod* pod : pods) {
    const std::optional<PodIdentity> id = parse_pod_name(job, pod->name);
    if (!id) continue;  // not created by the operator
    const bool ours = !job.metadata.uid.empty() && pod->owner_uid == job.metadata.uid;
    const bool in_range = id->node_rank < job.group_nodes();
    if (!ours) {
      if (id->attempt == job.status.attempt && in_range) out.conflicting_pods.push_back(pod);
    } else if (id->attempt > job.status.attempt) {
      out.newer.push_back(pod);
    } else if (id->attempt < job.status.attempt || !in_range) {
      out.old.push_back(pod);
    } else {
      out.current[static_cast<size_t>(id->node_rank)] = pod;
    }
  }
  for (const Service& service : observed.services) {
    if (service.name != service_name(job)) continue;
    (service.owner_uid == job.metadata.uid ? out.service : out.conflicting_service) = &service;
  }
  out.wants_network_policy = observed.metrics_peers.has_value();
  for (const NetworkPolicy& policy : observed.network_policies) {
    if (policy.name != network_policy_name(job.metadata.name)) continue;
    (policy.owner_uid == job.metadata.uid ? out.network_policy : out.conflicting_network_policy) = &policy;
  }
  for (const PodGroup& group : observed.pod_groups) {
    const std::optional<int> attempt = attempt_of_group(job, group.name);
    if (!attempt || group.owner_uid != job.metadata.uid) continue;
    if (*attempt == job.status.attempt && out.pod_group == nullptr) out.pod_group = &group;
    if (*attempt < job.status.attempt) out.old_pod_groups.push_back(&group);
  }
  choose_workload(observed, out);
  return out;
}

bool has_pods(const Membership& members) {
  return std::ranges::any_of(members.current, [](const Pod* pod) { return pod != nullptr; });
}

const Pod* find_unlabeled_pod(const Membership& members) {
  const auto found =
      std::ranges::find_if(members.current, [](const Pod* pod) { return pod != nullptr && pod->unlabeled; });
  return found == members.current.end() ? nullptr : *found;
}

bool is_recorded_finished(const Membership& members, size_t node_rank) {
  return node_rank < members.finished.size() && members.finished[node_rank];
}

bool is_replacement_due(const Membership& members, size_t node_rank) {
  const api::Replacement* replacement =
      node_rank < members.replacements.size() ? members.replacements[node_rank] : nullptr;
  if (replacement == nullptr) return false;
  const Pod* pod = members.current[node_rank];
  return pod == nullptr || pod->uid == replacement->pod_uid;
}

bool is_replacement_pending(const Membership& members, size_t node_rank) {
  if (node_rank >= members.replacements.size() || members.replacements[node_rank] == nullptr) return false;
  const Pod* pod = members.current[node_rank];
  const bool has_started = pod != nullptr && (pod->phase == PodPhase::kRunning || has_ended(*pod));
  return !has_started || pod->uid == members.replacements[node_rank]->pod_uid;
}

bool is_disconnected(const Pod& pod) {
  return pod.trainer && pod.trainer->exit_code == to_int(ExitCode::kPeerLost) &&
         has_reason(*pod.trainer, kReasonDisconnected);
}

bool has_left_group(const Membership& members, size_t node_rank) {
  const Pod* pod = node_rank < members.current.size() ? members.current[node_rank] : nullptr;
  return is_replacement_pending(members, node_rank) || (pod != nullptr && is_disconnected(*pod));
}

bool has_missing_pods(const Membership& members) {
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    if (members.current[rank] == nullptr && !is_recorded_finished(members, rank)) return true;
  }
  return false;
}

const Pod* progress_pod(const Membership& members) {
  const Pod* pod = members.current.empty() ? nullptr : members.current.front();
  if (pod == nullptr || pod->phase != PodPhase::kRunning || pod->deleting || pod->pod_ip.empty() || has_ended(*pod))
    return nullptr;
  return pod;
}

bool was_polled_since(const Observed& observed, const Membership& members, SystemTime time) {
  return progress_pod(members) == nullptr || (observed.last_poll && observed.last_poll->sent_at >= time);
}

bool is_live(const Pod& pod) { return pod.phase != PodPhase::kSucceeded && pod.phase != PodPhase::kFailed; }

bool has_ended(const Pod& pod) { return pod.trainer || !is_live(pod); }

bool has_node(const Pod& pod) { return pod.scheduled || pod.phase == PodPhase::kRunning || has_ended(pod); }

bool is_stop_requested(const Pod& pod) {
  return pod.deleting || !pod.disruption.empty() || (pod.phase == PodPhase::kFailed && !pod.reason.empty());
}

bool has_exit_code_0(const Pod& pod) {
  return pod.trainer ? pod.trainer->exit_code == 0 : pod.phase == PodPhase::kSucceeded;
}

bool ended_before_stop(const Pod& pod) {
  if (!is_stop_requested(pod)) return true;
  return pod.trainer && pod.stop_requested_at && pod.trainer->finished_at &&
         *pod.trainer->finished_at + kClockTolerance < *pod.stop_requested_at;
}

bool has_succeeded(const Pod& pod) {
  if (!has_exit_code_0(pod)) return false;
  return ended_before_stop(pod) || (pod.trainer && reports_completion(pod.trainer->message));
}

}  // namespace oarlock::control
