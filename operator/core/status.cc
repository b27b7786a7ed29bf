#include "operator/core/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "common/text.h"
#include "operator/core/bad_nodes.h"
#include "operator/core/disruption.h"
#include "operator/core/elastic.h"
#include "operator/core/failure.h"
#include "operator/core/handover.h"
#include "operator/core/placement.h"
#include "operator/core/pod_failure.h"
#include "operator/core/pod_template.h"
#include "operator/core/pods.h"
#include "operator/core/progress.h"
#include "operator/core/queue.h"
#include "operator/core/restart_budget.h"
#include "operator/core/stall.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::Phase;

// Returns the creation time of the pods of an attempt whose start the status does not contain yet. The pods of a new
// job are created right after its Service, before the first status. Because clocks differ, the result is at most one
// minute before now.
SystemTime creation_time(const Observed& observed, const Membership& members) {
  const SystemTime now = observed.now;
  if (observed.job.status.phase != Phase::kNone || members.service == nullptr) return whole_seconds(now);
  return whole_seconds(std::clamp(members.service->created, now - std::chrono::minutes(1), now));
}

bool has_started(const Pod* pod) { return pod != nullptr && (pod->phase == PodPhase::kRunning || has_ended(*pod)); }

int count_started(const Membership& members) {
  int started = 0;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    if (has_started(members.current[rank]) || is_recorded_finished(members, rank)) ++started;
  }
  return started;
}

// A rank that is recorded as finished needs no pod. A rank whose failure a rule ignored counts as failed while its pod
// exists.
bool is_succeeded(const Membership& members, size_t rank) {
  const Pod* pod = members.current[rank];
  if (pod != nullptr && has_succeeded(*pod)) return true;
  return is_recorded_finished(members, rank) && (pod == nullptr || !has_ended(*pod) || has_exit_code_0(*pod));
}

api::NodeCounts count_nodes(const Membership& members, int desired) {
  api::NodeCounts out;
  out.desired = desired;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    if (is_succeeded(members, rank)) {
      ++out.succeeded;
    } else if (pod != nullptr && has_ended(*pod)) {
      ++out.failed;
    } else if (pod != nullptr && pod->ready && !pod->deleting) {
      ++out.ready;
    }
    if (pod != nullptr && pod->scheduled && !(pod->deleting && !has_ended(*pod))) ++out.scheduled;
  }
  out.summary = fmt::format("{}/{}", out.ready, desired);
  return out;
}

BoxedOptional<api::FinishedRanks> find_finished_ranks(const Job& job, const Membership& members) {
  std::vector<bool> done(members.current.size());
  for (size_t rank = 0; rank < done.size(); ++rank) done[rank] = is_rank_done(job, members, rank);
  std::string ranks = format_rank_set(done);
  if (ranks.empty()) return std::nullopt;
  return api::FinishedRanks{job.status.attempt, std::move(ranks)};
}

bool is_ordinary_wait(const std::string& reason) {
  return reason.empty() || reason == "ContainerCreating" || reason == "PodInitializing";
}

// Removes the records of replacements that have started, and of earlier attempts.
void refresh_replacements(const Membership& members, api::Status& status) {
  std::erase_if(status.replacements, [&](const api::Replacement& replacement) {
    const auto rank = static_cast<size_t>(replacement.node_rank);
    if (replacement.attempt != status.attempt || replacement.node_rank < 0 || rank >= members.current.size())
      return true;
    const Pod* pod = members.current[rank];
    return has_started(pod) && pod->uid != replacement.pod_uid;
  });
}

void refresh_phase(const Observed& observed, const Membership& members, api::Status& status) {
  if (status.phase == Phase::kNone) enter_phase(status, Phase::kPending, "PodsStarting", "", observed.now);
  if (status.phase != Phase::kPending && status.phase != Phase::kRestarting) return;
  if (count_started(members) == static_cast<int>(members.current.size())) {
    const size_t count = members.current.size();
    enter_phase(status, Phase::kRunning, "PodsRunning",
                count == 1 ? "the pod has started" : fmt::format("all {} pods have started", count), observed.now);
    // Neither the time between two attempts nor that until the first report counts as time without steps.
    if (status.progress && !has_progress(observed, status)) status.progress->last_step_time.reset();
    if (status.progress && status.progress->last_step_time)
      status.progress->last_step_time = whole_seconds(observed.now);
    return;
  }
  WaitingReason text = find_waiting_reason(observed, members);
  const int stopping = find_handover(status, observed.job, members, observed.now).count;
  if (stopping > 0 && has_missing_pods(members)) {
    text.message = fmt::format("waiting for {} of earlier attempts to save and end within the grace period",
                               counted(stopping, "pod"));
  }
  if (status.phase == Phase::kRestarting && !status.attempts.empty()) {
    const api::AttemptRecord& last = status.attempts.back();
    const std::optional<SystemTime> next_start = restart_time(observed.job, status, observed.now);
    if (next_start && *next_start > observed.now) {
      text.message = fmt::format("repeated failures: the next start is at {}", to_rfc3339(*next_start));
    }
    text.reason = last.reason;
    text.message = fmt::format("attempt {}: {}; {}", last.attempt, last.message, text.message);
  }
  enter_phase(status, status.phase, text.reason, text.message, observed.now);
}

// Names the first pod of the attempt without the job's label; empty if there is none.
std::string unlabeled_message(const Job& job, const Membership& members) {
  const Pod* pod = find_unlabeled_pod(members);
  if (pod == nullptr) return "";
  const std::string label = fmt::format("{}={}", kLabelJobName, job.metadata.name);
  return fmt::format(
      "pod {0} does not have the label {1}: the Service and the NetworkPolicy do not select it, and the operator reads "
      "it every {2} s only; restore the label: kubectl label pod {0} -n {3} --overwrite {1}",
      pod->name, label, kUnlabeledRequeue.count(), job.metadata.namespace_name);
}

// Whether no scheduler has reported on the pod. A scheduler that cannot place a pod sets its condition PodScheduled.
bool is_ignored(const Pod& pod) { return !has_node(pod) && pod.node_name.empty() && pod.unscheduled_message.empty(); }

}  // namespace

std::optional<SystemTime> scheduler_deadline(const Membership& members) {
  std::optional<SystemTime> first;
  // The pods of a gang are considered together.
  if (has_missing_pods(members)) return std::nullopt;
  for (const Pod* pod : members.current) {
    if (pod != nullptr && pod->created && is_ignored(*pod))
      first = std::min(first.value_or(*pod->created), *pod->created);
  }
  return first ? std::optional(*first + kSchedulerTime) : std::nullopt;
}

WaitingReason find_waiting_reason(const Observed& observed, const Membership& members) {
  const std::string so_far =
      fmt::format("{} of {}{}", count_started(members), members.current.size(), kPodsHaveStarted);
  const std::string& refused = observed.last_error.empty() ? observed.template_error : observed.last_error;
  if (!refused.empty() && (has_missing_pods(members) || members.service == nullptr)) {
    const std::string next =
        keeps_counted_pods(observed, members)
            ? fmt::format(
                  "; the ended pods of the last attempt, which this quota counts, are deleted {} s after the "
                  "start of this attempt",
                  kQuotaGracePeriod.count())
            : "";
    return {"CreateRefused", fmt::format("{}; {}{}{}", so_far, kApiServerRefused, sanitize_line(refused), next)};
  }
  if (is_waiting_for_queue(observed, members) && has_missing_pods(members)) return queue_reason(observed, members);
  for (const Pod* pod : members.current) {
    if (pod == nullptr || has_started(pod) || is_ordinary_wait(pod->waiting_reason)) continue;
    // The kubelet alternates between ErrImagePull and ImagePullBackOff. A single reason keeps the status from changing.
    const std::string reason =
        pod->waiting_reason == "ErrImagePull" ? "ImagePullBackOff" : sanitize_line(pod->waiting_reason, 60);
    const std::string why =
        pod->waiting_message.empty() || pod->waiting_reason != reason ? "" : ": " + sanitize_line(pod->waiting_message);
    return {reason, fmt::format("{}; pod {}: {}{}", so_far, pod->name, reason, why), pod};
  }
  const Pod* first = nullptr;
  for (const Pod* pod : members.current) {
    if (pod == nullptr || has_started(pod)) continue;
    if (first == nullptr) first = pod;
    if (pod->scheduled || pod->unscheduled_message.empty()) continue;
    return {"Unschedulable", fmt::format("{}; pod {}: {}", so_far, pod->name, sanitize_line(pod->unscheduled_message)),
            pod};
  }
  if (const auto end = scheduler_deadline(members); end && observed.now >= *end) {
    return {"Unschedulable",
            fmt::format("{}; no scheduler has considered them for {} s: does the one that "
                        "schedulerName of spec.template names run?",
                        so_far, kSchedulerTime.count()),
            first};
  }
  return {kPodsStarting, so_far, first};
}

bool have_all_started(const Job& job, const Membership& members) {
  if (is_running(job.status.phase)) return true;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    const bool is_started = pod != nullptr && (pod->started || pod->trainer || pod->phase == PodPhase::kRunning ||
                                               pod->phase == PodPhase::kSucceeded);
    if (!is_started && !is_recorded_finished(members, rank)) return false;
  }
  return true;
}

api::Status refresh_status(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  api::Status status = job.status;
  status.observed_generation = job.metadata.generation;
  // A resumed job has all nodes.
  const int nodes = status.phase == Phase::kSuspended ? job.spec.nodes : job.group_nodes();
  status.world_size = nodes * job.spec.processes_per_node;
  status.nodes = count_nodes(members, nodes);
  status.finished_ranks = find_finished_ranks(job, members);
  refresh_in_pod_restarts(observed, status);
  refresh_progress(observed, status);
  refresh_recoveries(observed, status);
  refresh_replacements(members, status);
  record_in_pod_failure(observed, members, status);
  refresh_bad_nodes(observed, members, status);
  refresh_queue(observed, members, status);
  if (status.phase != Phase::kSuspended) {
    if (!is_waiting_for_queue(observed, members)) {
      const SystemTime created = creation_time(observed, members);
      if (!status.start_time) status.start_time = created;
      if (!status.attempt_start_time) status.attempt_start_time = created;
    }
    refresh_phase(observed, members, status);
    refresh_disruption(observed, members, status);
    refresh_seconds_lost(observed, job.status.phase, status);
  }
  refresh_group_size(observed, members, status);
  set_condition(status.conditions, api::kConditionPodsUnlabeled, "LabelRemoved", unlabeled_message(job, members),
                observed.now);
  return status;
}

void enter_phase(api::Status& status, Phase phase, const std::string& reason, const std::string& message,
                 SystemTime now) {
  now = whole_seconds(now);
  status.phase = phase;
  status.unknown_phase.clear();
  bool found = false;
  for (api::Condition& condition : status.conditions) {
    if (!api::is_phase_name(condition.type)) continue;
    const bool is_true = condition.type == to_string(phase);
    if (condition.status != is_true) condition.last_transition_time = now;
    condition.status = is_true;
    if (!is_true) continue;
    found = true;
    condition.reason = reason;
    condition.message = message;
  }
  if (!found) status.conditions.push_back({to_string(phase), true, reason, message, now});
  if (is_terminal(phase)) status.completion_time = now;
  if (is_terminal(phase) || phase == Phase::kSuspended) status.replacements.clear();
  if (!is_running(phase)) status.disruption.reset();
}

const api::Condition* find_condition(const api::Status& status, Phase phase) {
  const auto found = std::find_if(status.conditions.begin(), status.conditions.end(),
                                  [&](const api::Condition& condition) { return condition.type == to_string(phase); });
  return found == status.conditions.end() ? nullptr : &*found;
}

bool set_condition(std::vector<api::Condition>& conditions, const char* type, const char* reason,
                   const std::string& message, SystemTime now) {
  const auto found = std::find_if(conditions.begin(), conditions.end(),
                                  [&](const api::Condition& condition) { return condition.type == type; });
  if (message.empty()) {
    if (found == conditions.end()) return false;
    conditions.erase(found);
    return true;
  }
  if (found == conditions.end()) {
    conditions.push_back({type, true, reason, message, whole_seconds(now)});
    return true;
  }
  if (found->status && found->reason == reason && found->message == message) return false;
  if (!found->status) found->last_transition_time = whole_seconds(now);
  found->status = true;
  found->reason = reason;
  found->message = message;
  return true;
}

void update_checkpoint_condition(const Job& job, api::Status& status, SystemTime now) {
  set_condition(status.conditions, api::kConditionCheckpointsNotKept, "EmptyDir",
                keeps_checkpoints(job) ? "" : kCheckpointsNotKept, now);
}

void count_restart(api::Status& status, std::string_view reason) {
  api::Restarts& restarts = status.restarts;
  restarts.after_progress = last_progress(status);
  increment(restarts.total);
  auto same = std::ranges::find(restarts.reasons, reason, &api::RestartCount::reason);
  if (same == restarts.reasons.end()) same = restarts.reasons.insert(same, {std::string(reason), 0});
  increment(same->count);
}

void record_attempt(const Observed& observed, const Membership& members, api::Status& status,
                    api::AttemptRecord record) {
  record.start_time = status.attempt_start_time;
  record.end_time = whole_seconds(observed.now);
  const std::optional<TerminationMessage> last = final_message(members);
  // While the job runs, the time of a step is that of a step of this attempt, which another operator process may have
  // observed.
  const bool has_stepped = has_progress(observed, status) ||
                           (is_running(status.phase) && status.progress && status.progress->last_step_time);
  if (status.progress && (has_stepped || (last && last->step > 0))) {
    record.step = status.progress->step;
    // Pods that are being stopped may still save a checkpoint.
    if (const std::optional<int64_t> saved = status.progress->checkpoint_step; saved && (!record.stopped || last))
      record.steps_lost = std::max<int64_t>(*record.step - std::max<int64_t>(*saved, 0), 0);
  }
  add_record(std::move(record), status.attempts);
}

void stop_attempt(const Observed& observed, const Membership& members, std::string_view reason,
                  const std::string& message, api::Status& status) {
  api::AttemptRecord record;
  record.attempt = status.attempt;
  record.reason = reason;
  record.message = message;
  record.stopped = true;
  record_attempt(observed, members, status, std::move(record));
  ++status.attempt;
  status.highest_progress = find_highest_progress(observed, members);
  count_restart(status, reason);
  status.attempt_start_time.reset();
  enter_phase(status, Phase::kRestarting, std::string(reason), message, observed.now);
}

}  // namespace oarlock::control
