#include "cli/cluster/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>

#include "cli/cluster/cause_text.h"
#include "cli/cluster/job_view.h"
#include "cli/cluster/output.h"
#include "common/text.h"
#include "operator/core/elastic.h"
#include "operator/core/launcher_injection.h"
#include "operator/core/queue.h"
#include "operator/core/restart_budget.h"
#include "operator/core/text.h"

namespace oarlock::cli {
namespace {

using api::Phase;
using Cause = DiagnosedCause;
using std::chrono::seconds;

std::string subject_of(const Diagnosis& found) {
  if (found.rank) return fmt::format("rank {}", *found.rank);
  if (found.node_rank) return fmt::format("node rank {}", *found.node_rank);
  return "a rank";
}

// ---- Where, when and cost ------------------------------------------------------------------------------------------

void set_place(const PodView& pod, const api::Spec& spec, Diagnosis& out) {
  out.pod = pod.name;
  out.node = pod.node;
  out.node_rank = pod.node_rank;
  out.attempt = pod.attempt;
  if (spec.processes_per_node == 1) out.rank = pod.node_rank;
}

void set_place(const Incident& incident, const api::Spec& spec, Diagnosis& out) {
  const api::AttemptRecord& record = incident.record;
  out.attempt = record.attempt;
  out.pod = printable(record.pod);
  out.node = printable(record.node);
  out.node_rank = record.node_rank;
  out.exit_code = record.exit_code;
  out.time = record.end_time;
  out.message = control::sanitize_line(record.message);
  out.rank = record.rank;
  if (!out.rank && record.node_rank && spec.processes_per_node == 1) out.rank = record.node_rank;
  const ContainerView* trainer = incident.pod == nullptr ? nullptr : incident.pod->trainer();
  if (trainer == nullptr || !trainer->end) return;
  if (trainer->end->message && out.node_rank) out.rank = trainer->end->message->rank;
  if (!trainer->end->text.empty()) out.message = trainer->end->text;
  if (trainer->end->finished_at) out.time = trainer->end->finished_at;
}

// Whether the progress is that of the attempt that failed, and not of one that followed.
bool is_progress_of(const api::AttemptRecord& failed, const api::Status& status) {
  if (!status.progress) return false;
  if (status.phase == Phase::kFailed) return true;
  return status.phase == Phase::kRestarting && status.progress->updated_at &&
         *status.progress->updated_at <= failed.end_time;
}

void add_steps_lost(const DiagnosisInput& input, const Incident& incident, Diagnosis& out) {
  int64_t step = -1;
  int64_t checkpoint = -1;
  const ContainerView* trainer = incident.pod == nullptr ? nullptr : incident.pod->trainer();
  if (trainer != nullptr && trainer->end && trainer->end->message) {
    step = trainer->end->message->step;
    checkpoint = trainer->end->message->checkpoint_step;
  }
  const api::Status& status = input.job.status;
  if (step <= 0 && is_progress_of(incident.record, status)) {  // it left no message, as after SIGKILL
    step = status.progress->step;
    checkpoint = status.progress->checkpoint_step.value_or(-1);
  }
  if (step <= 0) return;
  const int64_t lost = step - std::clamp<int64_t>(checkpoint, 0, step);
  out.cost.push_back(checkpoint >= 0
                         ? fmt::format("{}: it was at step {}, and the newest checkpoint has step {}",
                                       counted(lost, "step"), step, checkpoint)
                         : fmt::format("{}: it was at step {}, without a checkpoint", counted(lost, "step"), step));
}

void add_cost(const DiagnosisInput& input, const Incident& incident, Diagnosis& out) {
  const api::TrainingJob& job = input.job;
  const api::AttemptRecord& record = incident.record;
  add_steps_lost(input, incident, out);
  if (record.start_time && record.end_time > *record.start_time) {
    const auto ran = std::chrono::duration_cast<seconds>(record.end_time - *record.start_time);
    out.cost.push_back(
        fmt::format("the attempt ran for {} with {}", duration_text(ran), counted(job.world_size(), "rank")));
  }
  if (job.status.attempt == record.attempt + 1 && job.status.attempt_start_time &&
      *job.status.attempt_start_time >= record.end_time) {
    const auto down = std::chrono::duration_cast<seconds>(*job.status.attempt_start_time - record.end_time);
    out.cost.push_back(fmt::format("{} until the pods of the next attempt were created", duration_text(down)));
  }
  if (job.status.in_pod_restarts) {
    out.cost.push_back(fmt::format("{} of all processes in their pods before, which took {:.3g} s",
                                   counted(job.status.in_pod_restarts->total, "restart"),
                                   job.status.in_pod_restarts->seconds));
  }
  if (job.status.recoveries && job.status.recoveries->total > 0) {
    out.cost.push_back(fmt::format("{} without a restart before, which took {:.3g} s and lost no step",
                                   counted(job.status.recoveries->total, "recovery", "recoveries"),
                                   job.status.recoveries->seconds));
  }
  const api::Restarts& restarts = job.status.restarts;
  if (restarts.total > 0 || control::used_restarts(job.status) > 0) {
    out.cost.push_back(fmt::format("{} so far; {} of {} that failurePolicy.maxRestarts allows are used",
                                   counted(restarts.total, "restart"), control::used_restarts(job.status),
                                   job.spec.failure_policy.max_restarts));
  }
  if (restarts.after_progress && restarts.after_progress->count > 0) {
    out.cost.push_back(
        fmt::format("{} after progress: against the limit failurePolicy.maxTotalRestarts ({}) only",
                    counted(restarts.after_progress->count, "restart or replaced pod", "restarts and replaced pods"),
                    control::total_restart_limit(job.spec.failure_policy)));
  }
}

void add_history(const api::Status& status, std::optional<int> explained, Diagnosis& out) {
  for (auto record = status.attempts.rbegin(); record != status.attempts.rend(); ++record) {
    if (explained && record->attempt == *explained) continue;
    out.history.push_back(fmt::format("attempt {}: {}: {}", record->attempt, control::sanitize_line(record->reason, 60),
                                      control::sanitize_line(record->message, 200)));
  }
}

// ---- Evidence ------------------------------------------------------------------------------------------------------

void add_evidence(const DiagnosisInput& input, Diagnosis& out) {
  constexpr size_t kMaxEvents = 5;
  std::vector<const EventView*> events;
  for (const EventView& event : input.events) {
    const bool is_related =
        event.name == out.pod || event.kind == kKind || (event.kind == "Node" && event.name == out.node);
    if (event.type == "Warning" && is_related) events.push_back(&event);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const EventView* a, const EventView* b) { return a->last_time > b->last_time; });
  if (events.size() > kMaxEvents) events.resize(kMaxEvents);
  for (const EventView* event : events) {
    out.evidence.push_back(fmt::format("event {} of {} {}{}: {}", event->reason, event->kind, event->name,
                                       event->count > 1 ? fmt::format(" ({} times)", event->count) : "",
                                       event->message));
  }
  const api::Status& status = input.job.status;
  if (!api::is_terminal(status.phase) && status.queue)
    out.evidence.push_back("queue " + queue_text(status, input.now, input.queue_position));
  if (const std::string gang = gang_text(input.pods, status.attempt); !gang.empty() && !api::is_terminal(status.phase))
    out.evidence.push_back(gang);
  if (!api::is_terminal(status.phase)) {
    for (const std::string& node : bad_node_texts(input.job, input.now)) out.evidence.push_back("bad node " + node);
    if (std::string text = disruption_text(status, input.now); !text.empty()) out.evidence.push_back(std::move(text));
  }
  const auto& launcher = input.job.status.launcher;
  const std::string missing = launcher ? control::explain_missing_launcher(launcher->reason) : "";
  if (!missing.empty() && out.cause != Cause::kNone) out.evidence.push_back(missing);
  const NodeView* node = out.node.empty() ? nullptr : find_node_named(input, out.node);
  if (node == nullptr) return;
  if (!node->exists) {
    out.evidence.push_back(fmt::format("node {} no longer exists", node->name));
  } else if (!node->ready) {
    out.evidence.push_back(fmt::format("node {} is not ready{}{}", node->name,
                                       node->not_ready_message.empty() ? "" : ": ", node->not_ready_message));
  }
  if (!node->pressures.empty())
    out.evidence.push_back(fmt::format("node {} has {}", node->name, fmt::join(node->pressures, ", ")));
  if (node->cordoned) out.evidence.push_back(fmt::format("node {} is cordoned", node->name));
}

// Finalizers keep objects that are being deleted.
void add_deletion(const DiagnosisInput& input, Diagnosis& out) {
  const api::Metadata& job = input.job.metadata;
  const auto add = [&out](const std::string& object, const std::string& finalizers) {
    out.evidence.push_back(
        fmt::format("{} is being deleted; its finalizers hold it until the programs that set them remove them: {}",
                    object, finalizers));
  };
  if (!input.finalizers.empty()) add(fmt::format("job {}", job.name), input.finalizers);
  for (const PodView& pod : input.pods) {
    const bool has_ended = pod.phase == "Succeeded" || pod.phase == "Failed";
    if (!pod.finalizers.empty() && has_ended) add(fmt::format("pod {}", pod.name), pod.finalizers);
  }
  if (job.deletion_timestamp) out.headline += "; the job is being deleted";
}

// ---- Diagnosis by phase --------------------------------------------------------------------------------------------

Diagnosis explain(const DiagnosisInput& input, const Incident& incident, std::string_view prefix) {
  Diagnosis out;
  out.cause = cause_of_incident(input, incident);
  set_place(incident, input.job.spec, out);
  if (out.exit_code) out.explanation = exit_code_text(*out.exit_code);
  if (out.cause == Cause::kOutOfMemory && out.exit_code == 128 + SIGKILL) out.explanation += ", out of memory";
  const ContainerView* init = incident.pod == nullptr ? nullptr : failed_init_container(*incident.pod);
  if (out.cause == Cause::kInitContainer && init == nullptr && out.exit_code) {
    out.explanation = fmt::format("init container {}: {}", printable(incident.record.container), out.explanation);
  } else if (out.cause == Cause::kInitContainer && init != nullptr) {
    out.exit_code = init->end->exit_code;
    out.explanation = fmt::format("init container {}: {}", init->name, exit_code_text(init->end->exit_code));
    if (!init->end->text.empty()) out.message = init->end->text;
  }
  out.headline = fmt::format("{} {}: {}", input.job.metadata.name, prefix, cause_sentence(out.cause, subject_of(out)));
  add_cost(input, incident, out);
  add_history(input.job.status, incident.record.attempt, out);
  return out;
}

Diagnosis simple(const DiagnosisInput& input, Cause cause, std::string_view prefix, const std::string& message) {
  Diagnosis out;
  out.cause = cause;
  out.message = control::sanitize_line(message);
  out.attempt = input.job.status.attempt;
  out.headline = fmt::format("{} {}: {}", input.job.metadata.name, prefix, cause_sentence(out.cause, subject_of(out)));
  return out;
}

Diagnosis explain_start(const DiagnosisInput& input, const StartProblem& problem, std::string_view prefix) {
  Diagnosis out;
  out.cause = problem.cause;
  if (problem.pod != nullptr) set_place(*problem.pod, input.job.spec, out);
  out.message = control::sanitize_line(problem.message);
  out.headline = fmt::format("{} {}: {}", input.job.metadata.name, prefix, cause_sentence(out.cause, subject_of(out)));
  if (input.job.metadata.creation_timestamp && input.job.status.attempt == 0)
    out.cost.push_back(fmt::format("it has waited for {}", age_text(input.job.metadata.creation_timestamp, input.now)));
  add_history(input.job.status, std::nullopt, out);
  return out;
}

Diagnosis diagnose_failed(const DiagnosisInput& input) {
  const api::Status& status = input.job.status;
  const api::Condition* condition = current_condition(status);
  const std::string reason = condition == nullptr ? "" : condition->reason;
  const std::string message = condition == nullptr ? "" : condition->message;
  if (reason == "DeadlineExceeded" || reason == "InvalidTemplate") {
    Diagnosis out =
        simple(input, reason == "DeadlineExceeded" ? Cause::kDeadline : Cause::kTemplateInvalid, "failed", message);
    out.time = status.completion_time;
    if (status.progress) {
      const std::string goal =
          status.progress->target_steps ? fmt::format(" of {}", *status.progress->target_steps) : "";
      out.cost.push_back(fmt::format("it was at step {}{}", status.progress->step, goal));
    }
    add_history(status, std::nullopt, out);
    return out;
  }
  if (!status.attempts.empty()) {
    Diagnosis out = explain(input, make_incident(input, status.attempts.back()), "failed");
    if (reason == control::kMaxRestartsExceeded) out.cost.push_back("no restart is left, so that the job ended");
    if (reason == control::kNoProgress) {
      const api::AfterProgress last = status.restarts.after_progress.value_or(api::AfterProgress{});
      out.cost.push_back(fmt::format("it failed {} times without progress beyond step {}, so that the job ended",
                                     last.failures, last.step.value_or(0)));
    }
    return out;
  }
  if (const auto incident = unrecorded_incident(input)) return explain(input, *incident, "failed");
  api::AttemptRecord record;
  record.attempt = status.attempt;
  record.reason = reason;
  record.message = message;
  record.end_time = status.completion_time.value_or(input.now);
  return explain(input, make_incident(input, record), "failed");
}

Diagnosis diagnose_waiting(const DiagnosisInput& input) {
  const api::Status& status = input.job.status;
  const api::Condition* present = current_condition(status);
  const bool is_grown_or_scaled =
      present != nullptr && (present->reason == control::kGrown || present->reason == control::kScaled);
  const bool is_restart = status.phase == Phase::kRestarting && !is_grown_or_scaled;
  const StartProblem problem = find_start_problem(input, present);
  if (is_restart && !status.attempts.empty()) {
    Diagnosis out = explain(input, make_incident(input, status.attempts.back()), "is restarting");
    if (problem.cause != Cause::kNone) {
      out.evidence.push_back(fmt::format("attempt {} waits: {}: {}", status.attempt, to_string(problem.cause),
                                         control::sanitize_line(problem.message)));
    } else if (present != nullptr) {  // the backoff, or pods of the last attempt that save a checkpoint
      out.evidence.push_back(fmt::format("state of the restart: {}", control::sanitize_line(present->message)));
    }
    return out;
  }
  if (problem.cause != Cause::kNone)
    return explain_start(input, problem, problem.cause == Cause::kQueued ? "waits" : "cannot start");
  if (const auto incident = unrecorded_incident(input)) return explain(input, *incident, "has failed pods");
  Diagnosis out;
  const api::Condition* condition = current_condition(status);
  out.headline = fmt::format("{} is starting; no failure is known", input.job.metadata.name);
  if (condition != nullptr) out.message = control::sanitize_line(condition->message);
  add_history(status, std::nullopt, out);
  return out;
}

// Only the message of rank 0 is known, from the condition; other ranks may have reported the cause of the hang.
Diagnosis diagnose_stalled(const DiagnosisInput& input) {
  const api::Condition* condition = current_condition(input.job.status);
  Diagnosis out = simple(input, Cause::kHang, "is stalled", condition == nullptr ? "" : condition->message);
  if (const auto& progress = input.job.status.progress; progress && progress->last_step_time) {
    out.time = progress->last_step_time;
    out.cost.push_back(fmt::format("{} without a step, with {}", age_text(progress->last_step_time, input.now),
                                   counted(input.job.world_size(), "rank")));
  }
  out.remedies.push_back(fmt::format("oarlock top {} -n {} shows which rank is behind", input.job.metadata.name,
                                     input.job.metadata.namespace_name));
  add_history(input.job.status, std::nullopt, out);
  return out;
}

Diagnosis diagnose_healthy(const DiagnosisInput& input) {
  const api::Status& status = input.job.status;
  const std::string name = input.job.metadata.name;
  const bool is_complete = status.phase == Phase::kComplete;
  if (!is_complete && status.phase != Phase::kSuspended) {
    if (const auto incident = unrecorded_incident(input)) return explain(input, *incident, "has failed pods");
  }
  if (status.phase == Phase::kSuspended && status.attempts.empty()) {
    Diagnosis out = simple(input, Cause::kSuspended, "does not run", "");
    return out;
  }
  if (status.attempts.empty()) {
    Diagnosis out;
    out.headline = is_complete ? fmt::format("{} is complete; it never failed", name)
                               : fmt::format("{} runs; it has not failed", name);
    return out;
  }
  const std::string prefix = fmt::format("{}; its last {}",
                                         is_complete                         ? "is complete"
                                         : status.phase == Phase::kSuspended ? "is suspended"
                                                                             : "runs again",
                                         control::ended_by_queue(status.attempts.back()) ? "stop" : "failure");
  Diagnosis out = explain(input, make_incident(input, status.attempts.back()), prefix);
  out.is_resolved = true;
  return out;
}

Diagnosis diagnose_phase(const DiagnosisInput& input) {
  const api::TrainingJob& job = input.job;
  if (!job.report.problem.empty()) return simple(input, Cause::kSpecInvalid, "cannot be managed", job.report.problem);
  switch (job.status.phase) {
    case Phase::kFailed:
      return diagnose_failed(input);
    case Phase::kPending:
    case Phase::kRestarting:
      return diagnose_waiting(input);
    case Phase::kStalled:
      return diagnose_stalled(input);
    case Phase::kSuspended: {
      const StartProblem problem = find_start_problem(input, current_condition(job.status));
      if (problem.cause == Cause::kProfileMissing || problem.cause == Cause::kProfileInvalid)
        return explain_start(input, problem, "cannot be resumed");
      return diagnose_healthy(input);
    }
    case Phase::kRunning:
    case Phase::kComplete:
      return diagnose_healthy(input);
    case Phase::kNone:
      break;
  }
  if (job.spec.is_managed_elsewhere()) {
    Diagnosis out;
    out.headline =
        fmt::format("{} is managed by {}, which reports its state", job.metadata.name, shortened(job.spec.managed_by));
    return out;
  }
  if (!input.pods.empty()) return diagnose_waiting(input);
  return simple(input, Cause::kNotManaged, "has no status", "");
}

// ---- Objects to read -----------------------------------------------------------------------------------------------

// Pods that failed or do not start, and the root cause of the last recorded failure.
bool is_of_interest(const api::TrainingJob& job, const PodView& pod) {
  const bool is_root_cause = !job.status.attempts.empty() && job.status.attempts.back().pod == pod.name;
  return is_root_cause || pod.phase == "Pending" || pod.phase == "Failed" || pod.deleting || !pod.disruption.empty();
}

}  // namespace

std::vector<std::string> nodes_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods) {
  constexpr size_t kMaxNodes = 4;
  std::vector<std::string> out;
  const auto add = [&](const std::string& node) {
    if (!node.empty() && out.size() < kMaxNodes && std::find(out.begin(), out.end(), node) == out.end())
      out.push_back(node);
  };
  if (!job.status.attempts.empty()) add(job.status.attempts.back().node);
  for (const PodView& pod : pods) {
    if (is_of_interest(job, pod)) add(pod.node);
  }
  return out;
}

std::vector<std::string> pods_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods) {
  constexpr size_t kMaxPods = 6;
  std::vector<std::string> out;
  if (!job.status.attempts.empty() && !job.status.attempts.back().pod.empty())
    out.push_back(job.status.attempts.back().pod);
  for (const PodView& pod : pods) {
    if (out.size() >= kMaxPods) break;
    if (is_of_interest(job, pod) && std::find(out.begin(), out.end(), pod.name) == out.end()) out.push_back(pod.name);
  }
  return out;
}

Diagnosis diagnose(const DiagnosisInput& given) {
  DiagnosisInput input = given;
  // The growth or scale of an elastic job is not a failure.
  std::erase_if(input.job.status.attempts, [](const api::AttemptRecord& record) {
    return control::ended_by_resize(record) && record.reason != control::kShrunk;
  });
  Diagnosis out = diagnose_phase(input);
  if (const std::string usage = usage_text(input.job.status); !usage.empty()) out.cost.push_back("in all " + usage);
  if (const std::string startup = startup_text(input.job.status); !startup.empty())
    out.evidence.push_back(fmt::format("start of attempt {}: {}", input.job.status.attempt, startup));
  add_evidence(input, out);
  add_deletion(input, out);
  const std::vector<std::string> remedies = remedies_for(out.cause, input.job.metadata, out.pod, out.node);
  out.remedies.insert(out.remedies.end(), remedies.begin(), remedies.end());
  const bool has_log = out.cause != Cause::kNone && !out.pod.empty() && (out.exit_code || out.cause == Cause::kHang);
  if (has_log && out.attempt) {
    out.remedies.push_back(fmt::format("oarlock logs {} -n {} --attempt {}{}", input.job.metadata.name,
                                       input.job.metadata.namespace_name, *out.attempt,
                                       out.rank ? fmt::format(" --rank {}", *out.rank) : ""));
  }
  return out;
}

}  // namespace oarlock::cli
