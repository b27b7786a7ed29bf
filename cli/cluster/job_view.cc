#include "cli/cluster/job_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "api/validate.h"
#include "common/json_access.h"
#include "common/text.h"
#include "operator/core/desired.h"
#include "operator/core/ledger.h"
#include "operator/core/pod_template.h"
#include "operator/core/restart_budget.h"
#include "operator/core/startup.h"

namespace oarlock::cli {
namespace {

using api::Phase;

constexpr int kBarWidth = 24;
constexpr size_t kMaxEventRows = 10;
constexpr size_t kMaxPodRows = 64;

std::string phase_text(const api::Status& status) {
  if (!status.unknown_phase.empty()) return status.unknown_phase;
  const std::string text = api::to_string(status.phase);
  return text.empty() ? "New" : text;
}

std::string step_text(const api::Progress& progress) {
  return progress.target_steps ? fmt::format("{}/{}", progress.step, *progress.target_steps)
                               : fmt::format("{}", progress.step);
}

std::string eta_text(const api::Status& status, SystemTime now) {
  if (!status.progress || !status.progress->eta || !api::is_running(status.phase)) return "";
  return duration_text(std::chrono::duration_cast<std::chrono::seconds>(*status.progress->eta - now));
}

std::vector<Cell> job_row(const api::TrainingJob& job, bool is_wide, bool has_namespaces, SystemTime now) {
  const api::Status& status = job.status;
  std::vector<Cell> row;
  if (has_namespaces) row.emplace_back(job.metadata.namespace_name);
  row.emplace_back(job.metadata.name, Color::kBold);
  row.emplace_back(phase_text(status), phase_color(status.phase));
  row.emplace_back(ready_text(status));
  row.emplace_back(status.progress ? std::to_string(status.progress->step) : "");
  row.emplace_back(status.progress ? status.progress->completed : "");
  row.emplace_back(std::to_string(status.restarts.total));
  row.emplace_back(age_text(job.metadata.creation_timestamp, now));
  if (!is_wide) return row;
  const api::Condition* condition = current_condition(status);
  row.emplace_back(status.progress && status.progress->loss ? number_text(*status.progress->loss) : "");
  row.emplace_back(status.progress && status.progress->samples_per_second
                       ? number_text(*status.progress->samples_per_second) + "/s"
                       : "");
  row.emplace_back(eta_text(status, now));
  row.emplace_back(fmt::format("{}x{}", job.group_nodes(), job.spec.processes_per_node));
  row.emplace_back(status.queue ? status.queue->name : "");
  row.emplace_back(condition == nullptr ? "" : condition->reason);
  return row;
}

std::string restarts_text(const api::TrainingJob& job) {
  const api::Restarts& restarts = job.status.restarts;
  const int after_progress = restarts.after_progress ? restarts.after_progress->count : 0;
  if (restarts.total == 0 && after_progress == 0 && control::used_restarts(job.status) == 0) return "none";
  std::string out = fmt::format("{} ({} of {} that count are used", restarts.total, control::used_restarts(job.status),
                                job.spec.failure_policy.max_restarts);
  if (after_progress > 0) {
    out += fmt::format("; {} after progress, {} in all are allowed",
                       counted(after_progress, "restart or replaced pod", "restarts and replaced pods"),
                       control::total_restart_limit(job.spec.failure_policy));
  }
  std::vector<std::string> reasons;
  for (const api::RestartCount& one : restarts.reasons) reasons.push_back(fmt::format("{} {}", one.count, one.reason));
  return fmt::format("{}){}{}", out, reasons.empty() ? "" : ": ", fmt::join(reasons, ", "));
}

std::string recoveries_text(const api::Recoveries& recoveries) {
  std::string out;
  if (recoveries.total > 0) {
    out = fmt::format("{} without a restart and without a lost step, {:.3g} s in all; the last one of ranks {}: {}",
                      recoveries.total, recoveries.seconds, printable(recoveries.last_ranks),
                      printable(recoveries.last_reason));
  }
  if (recoveries.pods > 0) {
    out += fmt::format("{}{} replaced pods, of which {} count as restarts", out.empty() ? "" : "; ", recoveries.pods,
                       recoveries.charged);
  }
  return out;
}

std::string in_pod_restarts_text(const api::InPodRestarts& restarts) {
  return fmt::format("{} of all processes in their pods, {:.3g} s in all; the last one: {}", restarts.total,
                     restarts.seconds, printable(restarts.last_reason));
}

std::string conditions_text(const api::Status& status, const Style& style, SystemTime now) {
  Table table({"TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"});
  for (const api::Condition& condition : status.conditions) {
    // A condition of another controller is kept as JSON.
    nlohmann::json other = nlohmann::json::parse(condition.verbatim, nullptr, false);
    if (other.is_object()) {
      table.add({condition.type, text_at(other, "status"), text_at(other, "lastTransitionTime"),
                 text_at(other, "reason"), shortened(text_at(other, "message"), 400)});
      continue;
    }
    table.add({condition.type, condition.status ? "True" : "False", age_text(condition.last_transition_time, now),
               condition.reason, condition.message});
  }
  return table.rows() == 0 ? "" : fmt::format("Conditions:\n{}", table.to_text(style, "  "));
}

std::string attempts_text(const api::Status& status, const Style& style, SystemTime now) {
  Table table({"ATTEMPT", "RAN", "ENDED", "REASON", "EXIT", "NODE", "MESSAGE"});
  for (const api::AttemptRecord& record : status.attempts) {
    table.add({std::to_string(record.attempt),
               record.start_time ? duration_text(std::chrono::duration_cast<std::chrono::seconds>(record.end_time -
                                                                                                  *record.start_time))
                                 : "",
               age_text(record.end_time, now) + " ago", Cell(record.reason, Color::kRed),
               record.exit_code ? std::to_string(*record.exit_code) : "", record.node, record.message});
  }
  return table.rows() == 0 ? "" : fmt::format("Failed attempts:\n{}", table.to_text(style, "  "));
}

Color pod_color(const PodView& pod) {
  if (pod.phase == "Failed") return Color::kRed;
  if (pod.phase == "Succeeded" || pod.ready) return Color::kGreen;
  return Color::kYellow;
}

std::string pods_text(std::vector<PodView> pods, bool is_wide, const Style& style, SystemTime now) {
  std::sort(pods.begin(), pods.end(), [](const PodView& a, const PodView& b) { return a.node_rank < b.node_rank; });
  Table table(is_wide ? std::vector<std::string>{"POD", "NODE RANK", "STATE", "READY", "AGE", "NODE", "MESSAGE"}
                      : std::vector<std::string>{"POD", "NODE RANK", "STATE", "READY", "AGE", "NODE"});
  for (const PodView& pod : pods) {
    if (table.rows() == kMaxPodRows) break;
    std::vector<Cell> row = {pod.name,
                             std::to_string(pod.node_rank),
                             Cell(pod_state(pod), pod_color(pod)),
                             pod.ready ? "yes" : "no",
                             age_text(pod.created, now),
                             pod.node};
    const ContainerView* trainer = pod.trainer();
    if (is_wide)
      row.emplace_back(!pod.message.empty()                 ? pod.message
                       : !pod.finalizers.empty()            ? "held by finalizers: " + pod.finalizers
                       : trainer != nullptr && trainer->end ? trainer->end->text
                       : !pod.scheduled                     ? pod.unscheduled_message
                       : trainer != nullptr                 ? trainer->waiting_message
                                                            : "");
    table.add(std::move(row));
  }
  if (table.rows() == 0) return "";
  std::string out = fmt::format("Pods:\n{}", table.to_text(style, "  "));
  if (pods.size() > kMaxPodRows) out += fmt::format("  and {} more\n", pods.size() - kMaxPodRows);
  return out;
}

std::string events_text(std::vector<EventView> events, const Style& style, SystemTime now) {
  std::stable_sort(events.begin(), events.end(),
                   [](const EventView& a, const EventView& b) { return a.last_time < b.last_time; });
  Table table({"AGE", "TYPE", "REASON", "COUNT", "MESSAGE"});
  const size_t first = events.size() > kMaxEventRows ? events.size() - kMaxEventRows : 0;
  for (size_t i = first; i < events.size(); ++i) {
    const EventView& event = events[i];
    table.add({age_text(event.last_time, now),
               Cell(event.type, event.type == "Warning" ? Color::kYellow : Color::kNone), event.reason,
               std::to_string(event.count), event.message});
  }
  return table.rows() == 0 ? "" : fmt::format("Events:\n{}", table.to_text(style, "  "));
}

}  // namespace

Color phase_color(Phase phase) {
  switch (phase) {
    case Phase::kRunning:
    case Phase::kComplete:
      return Color::kGreen;
    case Phase::kFailed:
      return Color::kRed;
    case Phase::kStalled:
    case Phase::kRestarting:
    case Phase::kPending:
      return Color::kYellow;
    case Phase::kSuspended:
    case Phase::kNone:
      break;
  }
  return Color::kFaint;
}

Table job_table(const std::vector<api::TrainingJob>& jobs, bool is_wide, bool has_namespaces, SystemTime now) {
  std::vector<std::string> headers;
  if (has_namespaces) headers.emplace_back("NAMESPACE");
  for (const char* name : {"NAME", "STATE", "READY", "STEP", "PROGRESS", "RESTARTS", "AGE"}) headers.emplace_back(name);
  if (is_wide) {
    for (const char* name : {"LOSS", "SPEED", "ETA", "RANKS", "QUEUE", "REASON"}) headers.emplace_back(name);
  }
  Table table(std::move(headers));
  for (const api::TrainingJob& job : jobs) table.add(job_row(job, is_wide, has_namespaces, now));
  return table;
}

const api::Condition* current_condition(const api::Status& status) {
  const std::string type = api::to_string(status.phase);
  const auto found = std::find_if(status.conditions.begin(), status.conditions.end(),
                                  [&](const api::Condition& one) { return one.type == type; });
  return found == status.conditions.end() ? nullptr : &*found;
}

std::string ready_text(const api::Status& status) {
  return status.nodes.desired > 0 ? fmt::format("{}/{}", status.nodes.ready, status.nodes.desired) : "";
}

std::string progress_text(const api::Status& status, SystemTime now) {
  if (!status.progress) return "";
  const api::Progress& progress = *status.progress;
  std::string out;
  if (progress.target_steps && *progress.target_steps > 0) {
    const double share = static_cast<double>(progress.step) / static_cast<double>(*progress.target_steps);
    out = fmt::format("{} {}  ", progress_bar(share, kBarWidth), progress.completed);
  }
  out += fmt::format("step {}", step_text(progress));
  if (progress.loss) out += fmt::format("  loss {}", number_text(*progress.loss));
  if (progress.samples_per_second) out += fmt::format("  {} samples/s", number_text(*progress.samples_per_second));
  if (const std::string eta = eta_text(status, now); !eta.empty()) out += "  ETA " + eta;
  return out;
}

std::string checkpoint_text(const api::TrainingJob& job) {
  std::string place;
  if (control::keeps_checkpoints(job)) {
    place = job.spec.checkpoints && !job.spec.checkpoints->claim_name.empty()
                ? "claim " + job.spec.checkpoints->claim_name
            : control::needs_new_claim(job) ? fmt::format("claim {}", control::claim_name(job))
                                            : "a volume of the template";
  } else {
    place = "an emptyDir, which is lost with its pod";
  }
  if (api::validate(job).empty()) {
    const std::string directory = control::PodFactory(job, job.status.attempt).group().checkpoint_dir;
    if (!directory.empty()) place += ", directory " + directory;
  }
  if (job.status.progress && job.status.progress->checkpoint_step)
    return fmt::format("step {} in {}", *job.status.progress->checkpoint_step, place);
  return "none yet; they are written to " + place;
}

std::string startup_text(const api::Status& status) {
  constexpr std::string_view kNames[] = {"nodes after", "containers", "first report", "first step"};
  static_assert(std::size(kNames) == control::kStartupStages.size());
  if (!status.startup || status.startup->attempt != status.attempt) return "";
  std::string out;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    const std::optional<int64_t>& done = (*status.startup).*control::kStartupStages.at(i).done;
    if (done) out += fmt::format("{}{} {}", i == 0 ? "" : ", ", kNames[i], duration_text(std::chrono::seconds(*done)));
  }
  return out;
}

std::string usage_text(const api::Status& status) {
  constexpr double kMillisecondsPerHour = 3'600'000;
  if (!status.usage || status.usage->allocated <= 0) return "";
  const api::Usage& usage = *status.usage;
  const auto allocated = static_cast<double>(usage.allocated);
  std::vector<std::pair<double, std::string_view>> shares;
  for (size_t i = 0; i < kUsageClasses.size(); ++i) {
    const auto time = static_cast<double>(usage.classes[static_cast<UsageClass>(i)]);
    if (time > 0) shares.emplace_back(time / allocated, kUsageClasses[i]);
  }
  std::ranges::stable_sort(shares, std::greater(), [](const auto& one) { return one.first; });
  std::string out = number_text(allocated / kMillisecondsPerHour) + " accelerator-hours";
  for (const auto& [share, name] : shares)
    out += fmt::format("{}{} {:.1f}%", name == shares.front().second ? ": " : ", ", name, share * 100);
  const std::optional<double> ettr = control::effective_training_time_ratio(usage);
  if (usage.queued > 0 && ettr) {
    out += fmt::format("; ETTR {:.1f}% with {} hours queued", *ettr * 100,
                       number_text(static_cast<double>(usage.queued) / kMillisecondsPerHour));
  }
  return out;
}

bool is_waiting_in_queue(const api::Status& status) {
  return status.queue && status.queue->cluster_queue.empty() && !api::is_terminal(status.phase) &&
         status.phase != Phase::kSuspended;
}

std::string queue_text(const api::Status& status, SystemTime now, std::optional<int> position) {
  if (!status.queue) return "";
  const api::QueueStatus& queue = *status.queue;
  const std::string age = age_text(queue.since, now);
  if (queue.cluster_queue.empty()) {
    return fmt::format("{}, waiting{}{}", queue.name, age.empty() ? "" : " for " + age,
                       position ? fmt::format(" at position {} of the ClusterQueue", *position) : "");
  }
  std::string out = fmt::format("{}, admitted{} by ClusterQueue {}", queue.name, age.empty() ? "" : " " + age + " ago",
                                queue.cluster_queue);
  if (queue.nodes) out += " for " + counted(*queue.nodes, "node");
  if (!queue.flavors.empty()) out += fmt::format(" with flavors {}", fmt::join(queue.flavors, ", "));
  return out;
}

std::string queue_line(const api::Status& status, SystemTime now) {
  std::string out = queue_text(status, now);
  const api::Condition* condition = current_condition(status);
  if (out.empty() || !status.queue->cluster_queue.empty() || condition == nullptr) return out;
  const std::string mark = fmt::format("queue {}: ", status.queue->name);
  const size_t at = condition->message.rfind(mark);
  return at == std::string::npos ? out : fmt::format("{}: {}", out, condition->message.substr(at + mark.size()));
}

std::string gang_text(const std::vector<PodView>& pods, int attempt) {
  const auto is_member = [&](const PodView& pod) { return pod.attempt == attempt && !pod.gang.empty(); };
  const auto first = std::ranges::find_if(pods, is_member);
  if (first == pods.end()) return "";
  const auto count = std::ranges::count_if(pods, is_member);
  const auto placed =
      std::ranges::count_if(pods, [&](const PodView& pod) { return is_member(pod) && !pod.node.empty(); });
  return fmt::format("{}: {} of {} pods have nodes", first->gang, placed, count);
}

std::vector<std::string> bad_node_texts(const api::TrainingJob& job, SystemTime now) {
  const auto period = control::clamp_period(job.spec.failure_policy.avoid_nodes_seconds);
  std::vector<std::string> out;
  if (api::is_terminal(job.status.phase)) return out;
  for (const api::BadNode& node : job.status.bad_nodes) {
    const SystemTime end = node.last_time + period;
    if (end <= now) continue;
    const std::string left = duration_text(std::chrono::ceil<std::chrono::seconds>(end - now));
    const std::string effect =
        node.avoidance == api::NodeAvoidance::kNone
            ? "not avoided, because pods could not be placed otherwise"
            : fmt::format("pods {} other nodes for {} more",
                          node.avoidance == api::NodeAvoidance::kRequired ? "require" : "prefer", left);
    out.push_back(fmt::format("{}: {}; {}, the last one {} ago: {}", printable(node.name), effect,
                              counted(node.failures, "failure"), age_text(node.last_time, now),
                              printable(node.reason)));
  }
  return out;
}

std::string disruption_text(const api::Status& status, SystemTime now) {
  if (!status.disruption) return "";
  const size_t nodes = status.disruption->nodes.size();
  return fmt::format("node {} {} about to be drained or removed; a checkpoint was requested {} ago",
                     printable(status.disruption->reason),
                     nodes > 1 ? fmt::format("and {} are", counted(nodes - 1, "other")) : "is",
                     age_text(status.disruption->request_time, now));
}

std::string status_text(const StatusInput& input, bool is_wide, const Style& style, SystemTime now) {
  const api::TrainingJob& job = input.job;
  const api::Status& status = job.status;
  std::string out;
  const auto add = [&](std::string_view label, const std::string& text, Color color = Color::kNone) {
    if (!text.empty()) out += fmt::format("{:<13}{}\n", label, style.paint(color, printable(text)));
  };
  const api::Condition* condition = current_condition(status);
  add("Name:", fmt::format("{} (namespace {})", job.metadata.name, job.metadata.namespace_name), Color::kBold);
  add("State:",
      condition == nullptr ? phase_text(status)
                           : fmt::format("{} for {}: {}", phase_text(status),
                                         age_text(condition->last_transition_time, now), condition->reason),
      phase_color(status.phase));
  if (condition != nullptr) add("", condition->message);
  add("Nodes:", fmt::format("{} ready; {} x {} = {}", ready_text(status).empty() ? "none" : ready_text(status),
                            job.group_nodes(), job.spec.processes_per_node, counted(job.world_size(), "rank")));
  add("Queue:", queue_text(status, now, input.queue_position));
  add("Gang:", gang_text(input.pods, status.attempt));
  add("Topology:", input.topology);
  add("Progress:", progress_text(status, now));
  add("Checkpoint:", checkpoint_text(job));
  add("Attempt:", status.attempt_start_time
                      ? fmt::format("{}, started {} ago", status.attempt, age_text(status.attempt_start_time, now))
                      : std::to_string(status.attempt));
  add("Restarts:", restarts_text(job));
  add("Startup:", startup_text(status));
  add("Usage:", usage_text(status));
  if (status.launcher) {
    const api::InjectedLauncher& launcher = *status.launcher;
    add("Launcher:", launcher.image.empty() ? control::explain_missing_launcher(launcher.reason)
                                            : "copied into the pods from " + launcher.image);
  }
  if (status.in_pod_restarts) add("In pods:", in_pod_restarts_text(*status.in_pod_restarts));
  if (status.recoveries) add("Recoveries:", recoveries_text(*status.recoveries));
  const char* label = "Bad nodes:";
  for (const std::string& node : bad_node_texts(job, now)) add(std::exchange(label, ""), node, Color::kYellow);
  add("Disruption:", disruption_text(status, now), Color::kYellow);
  add("Age:", age_text(job.metadata.creation_timestamp, now));
  if (job.metadata.deletion_timestamp)
    add("Deletion:", "requested" + (input.finalizers.empty() ? "" : "; held by finalizers: " + input.finalizers),
        Color::kYellow);
  if (status.completion_time) add("Ended:", age_text(status.completion_time, now) + " ago");
  out += attempts_text(status, style, now);
  if (is_wide || status.phase != Phase::kRunning) out += conditions_text(status, style, now);
  out += pods_text(input.pods, is_wide, style, now);
  out += events_text(input.events, style, now);
  for (const std::string& text : input.notes) out += fmt::format("Note: {}\n", printable(text));
  const bool has_failure = !status.attempts.empty() || status.phase == Phase::kFailed ||
                           status.phase == Phase::kStalled || status.phase == Phase::kPending;
  if (has_failure)
    out += fmt::format("Next: oarlock why -n {} {}\n", printable(job.metadata.namespace_name),
                       printable(job.metadata.name));
  return out;
}

}  // namespace oarlock::cli
