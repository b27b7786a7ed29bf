#include "operator/core/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "operator/core/model.h"
#include "operator/core/pod_failure.h"
#include "operator/core/queue.h"
#include "operator/core/stall.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

// Remaining time in seconds beyond which no estimate is reported. A longer one is useless and would overflow
// SystemTime.
constexpr double kMaxRemainingSeconds = 100.0 * 365 * 24 * 3600;

// A pod can report any number. Sums of numbers below this one do not overflow.
constexpr int64_t kMaxRecoveries = 1'000'000'000;

double round_to_digits(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10.0, digits - 1 - std::floor(std::log10(std::fabs(value))));
  const double out = std::round(value * scale) / scale;
  return std::isfinite(out) ? out : value;  // the scale overflows at both ends of the range of double
}

std::string completed_percentage(const api::Progress& progress) {
  if (!progress.target_steps || *progress.target_steps <= 0) return "";
  const double share = static_cast<double>(progress.step) / static_cast<double>(*progress.target_steps);
  return fmt::format("{}%", static_cast<int>(std::clamp(share, 0.0, 1.0) * 100));
}

api::Progress to_progress(const RankStatus& rank) {
  api::Progress out;
  out.step = std::max<int64_t>(rank.step, 0);
  if (rank.target_steps > 0) out.target_steps = rank.target_steps;
  if (rank.checkpoint_step >= 0) out.checkpoint_step = rank.checkpoint_step;
  if (rank.loss && std::isfinite(*rank.loss)) out.loss = round_to_digits(*rank.loss, 6);
  if (rank.samples_per_second > 0 && std::isfinite(rank.samples_per_second))
    out.samples_per_second = round_to_digits(rank.samples_per_second, 4);
  SystemTime updated{};
  if (from_rfc3339(rank.updated_at, updated)) out.updated_at = whole_seconds(updated);
  // A pod can report any numbers, so the difference is computed in a type in which it cannot overflow.
  const double left =
      (static_cast<double>(rank.target_steps) - static_cast<double>(rank.step)) * rank.last_step_seconds;
  if (out.updated_at && out.target_steps && left > 0 && left < kMaxRemainingSeconds) {
    const SystemTime eta = *out.updated_at + std::chrono::seconds(static_cast<int64_t>(left));
    // A time that changes when it is stored and read would be written again by every reconciliation.
    if (SystemTime stored{}; from_rfc3339(to_rfc3339(eta), stored) && stored == eta) out.eta = eta;
  }
  out.completed = completed_percentage(out);
  return out;
}

// Returns how far the job has come by the reports of rank 0. Its highest step may lie between two writes of the status.
api::HighestProgress reported_progress(const Observed& observed, const api::Status& status) {
  api::HighestProgress out = status.highest_progress.value_or(api::HighestProgress{});
  if (!has_progress(observed, status)) return out;
  raise_to(out.step, observed.progress->step);
  raise_to(out.checkpoint_step, observed.progress->checkpoint_step);
  out.step = std::max(out.step, observed.highest_reported.step);
  out.checkpoint_step = std::max(out.checkpoint_step, observed.highest_reported.checkpoint_step);
  return out;
}

// Adds what an attempt has reported since the last time to the total and the seconds of `counts`, which is
// api::Recoveries or api::InPodRestarts. A number below that of the last report begins a new count. Returns false, and
// changes nothing, if the report is out of range or has nothing new.
template <typename Counts>
bool add_reported(Counts& counts, int attempt, int64_t reported_total, double reported_seconds, SystemTime now) {
  if (reported_total <= 0 || reported_total > kMaxRecoveries) return false;
  const double duration =
      std::isfinite(reported_seconds) && reported_seconds > 0 ? round_to_digits(reported_seconds, 6) : 0;
  const bool is_same = counts.attempt == attempt && counts.attempt_total >= 0 && counts.attempt_total <= reported_total;
  const int64_t added = reported_total - (is_same ? counts.attempt_total : 0);
  if (added == 0) return false;
  counts.total = std::clamp<int64_t>(counts.total, 0, kMaxRecoveries) + added;
  counts.seconds =
      round_to_digits(counts.seconds + std::max(0.0, duration - (is_same ? counts.attempt_seconds : 0)), 6);
  counts.attempt = attempt;
  counts.attempt_total = reported_total;
  counts.attempt_seconds = duration;
  counts.last_time = whole_seconds(now);
  return true;
}

}  // namespace

SystemTime whole_seconds(SystemTime time) { return std::chrono::floor<std::chrono::seconds>(time); }

bool has_progress(const Observed& observed, const api::Status& status) {
  return observed.progress && observed.progress->attempt == status.attempt;
}

void raise_to(std::optional<int64_t>& highest, int64_t reported) {
  if (reported >= 0) highest = std::max(highest, std::optional(reported));
}

std::optional<TerminationMessage> final_message(const Membership& members) {
  const Pod* first = members.current.empty() ? nullptr : members.current.front();
  if (first == nullptr || !first->trainer) return std::nullopt;
  return termination_message_from_json(first->trainer->message);
}

void refresh_progress(const Observed& observed, api::Status& status) {
  if (has_progress(observed, status)) {
    api::Progress next = to_progress(*observed.progress);
    const std::optional<SystemTime> last = status.progress ? status.progress->last_step_time : std::nullopt;
    if (last && status.progress->step == next.step) {
      next.last_step_time = last;
    } else {  // not `now`: the status may be written much later
      const SystemTime received = observed.step_received_at.value_or(observed.now);
      next.last_step_time = whole_seconds(std::max(received, last.value_or(SystemTime::min())));
    }
    // Rank 0's process may also have started again alone, while the other ranks have kept their state.
    if (observed.progress->phase == kPhaseOfStart && (!last || start_of_processes(status) > last))
      next.last_step_time.reset();
    status.progress = std::move(next);
    status.highest_progress = reported_progress(observed, status);
  }
  // A time in the future was recorded with a clock that was wrong.
  if (status.progress && status.progress->last_step_time.value_or(SystemTime::min()) > observed.now + kClockTolerance)
    status.progress->last_step_time = whole_seconds(observed.now);
}

void refresh_recoveries(const Observed& observed, api::Status& status) {
  if (!has_progress(observed, status)) return;
  const RankStatus& rank = *observed.progress;
  api::Recoveries next = status.recoveries.value_or(api::Recoveries{});
  if (!add_reported(next, status.attempt, rank.recoveries, rank.recovery_seconds, observed.now)) return;
  next.last_ranks = sanitize_line(rank.recovered_ranks, 60);
  next.last_reason = sanitize_line(rank.recovery_reason);
  status.recoveries = std::move(next);
}

void refresh_in_pod_restarts(const Observed& observed, api::Status& status) {
  if (!observed.launcher || observed.launcher->attempt != status.attempt) return;
  const InPodRestarts& report = observed.launcher->in_pod_restarts;
  api::InPodRestarts next = status.in_pod_restarts.value_or(api::InPodRestarts{});
  if (!add_reported(next, status.attempt, report.total, report.seconds, observed.now)) return;
  next.last_rank = report.rank >= 0 ? std::optional(report.rank) : std::nullopt;
  next.last_reason = sanitize_line(report.reason);
  status.in_pod_restarts = std::move(next);
}

void refresh_seconds_lost(const Observed& observed, api::Phase before, api::Status& status) {
  const bool has_started = before != api::Phase::kRunning && status.phase == api::Phase::kRunning;
  const bool is_current = has_progress(observed, status);
  for (api::AttemptRecord& record : status.attempts) {
    if (record.seconds_lost || ended_by_queue(record)) continue;  // the time in a queue is not that of a recovery
    const bool is_over = record.step ? is_current && observed.progress->step > *record.step
                                     : has_started && &record == &status.attempts.back();
    if (!is_over) continue;
    const SystemTime end = record.step ? observed.step_received_at.value_or(observed.now) : observed.now;
    record.seconds_lost = std::max<int64_t>(std::chrono::floor<std::chrono::seconds>(end - record.end_time).count(), 0);
  }
}

void apply_termination_message(const Membership& members, api::Status& status, SystemTime now) {
  const std::optional<TerminationMessage> message = final_message(members);
  if (!message) return;
  const Pod* first = members.current.front();
  // Launchers of earlier versions write step 0 for a rank that has left no message. Without progress, the program may
  // be one that reports no steps, which is never stalled.
  const bool has_step = message->step > 0;
  if (!has_step && !status.progress) return;
  api::Progress progress = status.progress.value_or(api::Progress{});
  if (has_step) {
    if (progress.step != message->step) progress.last_step_time = whole_seconds(now);
    progress.step = message->step;
    if (first->trainer->finished_at) progress.updated_at = whole_seconds(*first->trainer->finished_at);
  }
  if (message->checkpoint_step >= 0) progress.checkpoint_step = message->checkpoint_step;
  progress.eta.reset();
  progress.completed = completed_percentage(progress);
  status.progress = progress;
}

api::HighestProgress find_highest_progress(const Observed& observed, const Membership& members) {
  api::HighestProgress out = reported_progress(observed, observed.job.status);
  for (const Pod* pod : members.current) {
    if (pod == nullptr || !pod->trainer) continue;
    const auto message = termination_message_from_json(pod->trainer->message);
    if (!message) continue;
    raise_to(out.step, message->step);
    raise_to(out.checkpoint_step, message->checkpoint_step);
  }
  return out;
}

}  // namespace oarlock::control
