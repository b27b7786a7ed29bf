#include "operator/core/ledger.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "api/rules.h"
#include "operator/core/progress.h"
#include "operator/core/startup.h"

namespace oarlock::control {
namespace {

using api::Phase;

constexpr int64_t kMaxInterval = int64_t{366} * 24 * 3600 * 1000;  // milliseconds; a longer one would overflow
constexpr int64_t kMaxAccelerators = 1024;                         // of a pod
constexpr int64_t kMaxTotal = int64_t{1} << 61;                    // a client can write any status
// A pod that does not exist any more has ended within the default grace period of Kubernetes.
constexpr int64_t kGracePeriod = 30'000;  // milliseconds

int64_t to_milliseconds(SystemTime time) {
  return std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

int64_t to_milliseconds(double time_in_seconds) {
  constexpr double kMaxSeconds = 1e12;
  return std::isfinite(time_in_seconds) ? std::llround(std::clamp(time_in_seconds, 0.0, kMaxSeconds) * 1000) : 0;
}

void add(int64_t& total, int64_t value) { total = std::clamp<int64_t>(total, 0, kMaxTotal) + value; }

// What the group has done since `begin`. All times are Unix times in milliseconds, and none is after `now`.
class Timeline {
 public:
  Timeline(int64_t begin, int64_t now) : begin_(begin), end_(begin), now_(std::max(begin, now)) {}

  // The group did this until then. Has no effect if that time is known already.
  void extend_to(int64_t time, UsageClass one) {
    time = std::min(time, now_);
    if (time <= end_) return;
    end_ = time;
    parts_.emplace_back(time, one);
  }

  // Adds the time between both to its classes, `weight` times. Returns the sum.
  int64_t add_to(UsageMilliseconds& classes, int64_t from, int64_t to, int64_t weight) const {
    int64_t begin = begin_;
    int64_t sum = 0;
    for (const auto& [end, one] : parts_) {
      const int64_t time = std::max<int64_t>(std::min(end, to) - std::max(begin, from), 0) * weight;
      add(classes[one], time);
      sum += time;
      begin = end;
    }
    return sum;
  }

  // All pods existed until the present end, because the group has reported what it did.
  void set_proven() { proven_ = end_; }

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t now() const { return now_; }
  int64_t proven() const { return proven_; }

 private:
  int64_t begin_;
  int64_t end_;
  int64_t now_;
  int64_t proven_ = 0;
  std::vector<std::pair<int64_t, UsageClass>> parts_;  // in order; each with its end
};

// ---- Pods ----------------------------------------------------------------------------------------------------------

bool is_terminated(const Pod& pod) { return pod.phase == PodPhase::kSucceeded || pod.phase == PodPhase::kFailed; }

// The time in which a pod holds accelerators.
struct Allocation {
  int64_t begin = 0;
  int64_t idle = 0;  // from then on the trainer has ended
  int64_t end = 0;   // also the time until which it is known
};

// Absent if the pod has no node, or it is not known when it ended.
std::optional<Allocation> find_allocation(const Pod& pod, const Timeline& timeline) {
  if (!has_node(pod)) return std::nullopt;
  Allocation out{timeline.begin(), timeline.now(), timeline.now()};
  if (pod.scheduled_at) out.begin = to_milliseconds(*pod.scheduled_at);
  // By the clock of the node, which may be ahead.
  const auto end_at = [&](SystemTime time) { return std::min(to_milliseconds(time), timeline.now()); };
  if (pod.trainer && pod.trainer->finished_at) out.idle = end_at(*pod.trainer->finished_at);
  if (is_terminated(pod)) {
    const bool is_known = pod.trainer && pod.trainer->finished_at;
    if (!is_known && !pod.stop_requested_at) return std::nullopt;
    out.end = is_known ? out.idle : end_at(*pod.stop_requested_at);
  }
  return out;
}

// Returns the number of pods of the group that do not exist any more, or have ended at a time that is not known.
int count_gone(const Membership& members, const Timeline& timeline) {
  int gone = 0;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    const bool is_gone = pod == nullptr || (has_node(*pod) && !find_allocation(*pod, timeline));
    gone += is_gone && !is_recorded_finished(members, rank) ? 1 : 0;
  }
  return gone;
}

// Adds the time of all pods, and of those that do not exist any more. The pods of earlier attempts do not take part in
// what the group does.
void add_pods(const Observed& observed, const Membership& members, const Timeline& timeline, api::Usage& usage) {
  const int64_t weight = usage.accelerators_per_pod;
  const auto add_as = [&](UsageClass one, int64_t from, int64_t to) {
    const int64_t begin = std::max(from, timeline.begin());
    const int64_t time = std::max<int64_t>(std::min(to, timeline.end()) - begin, 0) * weight;
    add(usage.classes[one], time);
    add(usage.allocated, time);
  };
  const auto add_group = [&](int64_t from, int64_t to) {
    add(usage.allocated, timeline.add_to(usage.classes, from, to, weight));
  };
  int pods_at_begin = 0;
  int pods_at_end = 0;
  const auto add_pod = [&](const Pod* pod, bool is_in_group) {
    const std::optional<Allocation> time = pod == nullptr ? std::nullopt : find_allocation(*pod, timeline);
    if (!time) return;
    const int64_t trained_until = std::min(time->idle, time->end);
    if (is_in_group) {
      add_group(time->begin, trained_until);
    } else {
      add_as(UsageClass::kRecovery, time->begin, trained_until);
    }
    add_as(UsageClass::kIdle, std::max(time->begin, time->idle), time->end);
    const auto has_node_at = [&](int64_t at, int64_t end) {
      return time->begin <= at && (end > at || !is_terminated(*pod));
    };
    // It may have ended in the second of the last call.
    pods_at_begin += has_node_at(timeline.begin(), time->end + 1000) ? 1 : 0;
    pods_at_end += has_node_at(timeline.end(), time->end) ? 1 : 0;
  };
  const bool has_ended = is_terminal(observed.job.status.phase);
  for (const Pod* pod : members.current) add_pod(pod, true);
  for (const Pod* pod : members.old) add_pod(pod, has_ended);
  for (const Pod* pod : members.newer) add_pod(pod, has_ended);
  // Pods that have vanished while the last report is pending are counted once it is there.
  if (timeline.end() == timeline.begin() && timeline.end() < timeline.now())
    pods_at_end = std::max(pods_at_end, usage.pods);
  const int gone = std::clamp(usage.pods, 0, api::rules::kMaxNodes) - pods_at_begin;
  const int gone_from_group = has_ended ? gone : std::min(gone, count_gone(members, timeline));
  for (int i = 0; i < gone; ++i) {
    if (i < gone_from_group) {
      add_group(timeline.begin(), std::max(timeline.begin() + kGracePeriod, timeline.proven()));
    } else {
      add_as(UsageClass::kRecovery, timeline.begin(), timeline.begin() + kGracePeriod);
    }
  }
  usage.pods = pods_at_end;
}

// ---- Parts of the timeline -----------------------------------------------------------------------------------------

// The pods of the attempt start. Adds the time of the pods that have no node yet to usage.queued.
void add_start(const Observed& observed, const Membership& members, Timeline& timeline, api::Usage& usage) {
  const bool is_restart = observed.job.status.phase == Phase::kRestarting;
  const int64_t placed = to_milliseconds(find_placement_time(observed, members).value_or(observed.now));
  const int64_t started = to_milliseconds(find_start_time(observed, members).value_or(observed.now));
  timeline.extend_to(std::min(placed, started), is_restart ? UsageClass::kRecovery : UsageClass::kScheduling);
  timeline.extend_to(started, is_restart ? UsageClass::kRecovery : UsageClass::kPulling);
  if (observed.job.spec.suspend) return;
  int64_t queued = 0;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    if (is_recorded_finished(members, rank)) continue;
    int64_t until = timeline.end();
    if (pod != nullptr && has_node(*pod)) until = pod->scheduled_at ? to_milliseconds(*pod->scheduled_at) : 0;
    queued += std::max<int64_t>(std::min(until, timeline.end()) - timeline.begin(), 0);
  }
  add(usage.queued, queued * usage.accelerators_per_pod);
}

void add_steps(int64_t time, int64_t from, int64_t to, const api::Usage& usage, Timeline& timeline) {
  const double share = recomputed_share(from, to, usage.highest_step);
  const int64_t repeated = std::llround(static_cast<double>(std::max<int64_t>(time, 0)) * share);
  const int64_t begin = timeline.end();
  timeline.extend_to(begin + repeated, UsageClass::kRecomputed);
  timeline.extend_to(begin + time, UsageClass::kProductive);
}

UsageMilliseconds bounded(const UsageSeconds& reported) {
  UsageMilliseconds out;
  for (const UsageClass one : kReportedUsageClasses) out[one] = to_milliseconds(reported[one]);
  return out;
}

// Returns the time since the last report. A counter that has fallen is that of a new process, which begins at 0.
UsageMilliseconds subtract_last_report(const UsageMilliseconds& reported, api::Usage& usage, bool& is_new_process) {
  const UsageMilliseconds last = usage.reported.value_or(UsageMilliseconds{});
  UsageMilliseconds out = reported;
  is_new_process = is_new_process || std::ranges::any_of(kReportedUsageClasses,
                                                         [&](UsageClass one) { return reported[one] < last[one]; });
  usage.reported = reported;
  if (is_new_process) return out;
  for (const UsageClass one : kReportedUsageClasses) out[one] -= std::max<int64_t>(last[one], 0);
  return out;
}

// Rank 0, or its launcher, reports what the group has done. The first report of a process also covers the time in which
// other pods had not started, which is the beginning of its times. Returns whether it is that of a new process.
bool add_reported_classes(const Observed& observed, int64_t from, bool is_first, Timeline& timeline,
                          api::Usage& usage) {
  bool is_new_process = is_first;
  UsageMilliseconds times = subtract_last_report(bounded(*observed.progress->usage_seconds), usage, is_new_process);
  const bool is_answer = observed.last_poll && observed.last_poll->answered;
  const SystemTime received = observed.progress_sent_at.value_or(observed.step_received_at.value_or(observed.now));
  const int64_t reported_at = to_milliseconds(is_answer ? observed.last_poll->sent_at : received);
  int64_t excess = times.sum() - std::max<int64_t>(std::min(reported_at, timeline.now()) - timeline.end(), 0);
  if (is_new_process) {
    timeline.extend_to(timeline.end() - excess, is_first ? UsageClass::kStarting : UsageClass::kRecovery);
  }
  for (const UsageClass one : kReportedUsageClasses) {
    // The process may have been read before other pods had started, but not while it stepped.
    if (!is_new_process && one == UsageClass::kProductive) break;
    const int64_t dropped = std::clamp<int64_t>(excess, 0, times[one]);
    times[one] -= dropped;
    excess -= dropped;
  }
  // Without a step, the time may be that of a stall. It is counted with the next step, or when the phase changes.
  if (!is_new_process && usage.step == observed.progress->step) {
    (*usage.reported)[UsageClass::kProductive] -= times[UsageClass::kProductive];
    times[UsageClass::kProductive] = 0;
  }
  // A process that continues separates repeated steps itself. If it has gone back to a checkpoint since its last
  // report, its productive steps are above those of that report.
  const int64_t step = std::max<int64_t>(observed.progress->step, 0);
  const int64_t reached = is_new_process ? step : std::max(step, *usage.step);
  for (const UsageClass one : kReportedUsageClasses) {
    if (one == UsageClass::kProductive) {
      add_steps(times[one], reached > step ? reached : from, reached, usage, timeline);
    } else {
      timeline.extend_to(timeline.end() + times[one], one);
    }
  }
  return is_new_process;
}

// Adds the time up to the last report of rank 0.
void add_reports(const Observed& observed, Timeline& timeline, api::Usage& usage) {
  const api::Status& before = observed.job.status;
  if (!has_progress(observed, before)) return;
  const int64_t step = std::max<int64_t>(observed.progress->step, 0);
  const bool is_first = !usage.step;
  const bool has_fallen = !is_first && step < *usage.step;
  // Processes that start again begin at the newest checkpoint.
  const int64_t saved = before.progress ? before.progress->checkpoint_step.value_or(0) : 0;
  const int64_t checkpoint = std::max<int64_t>({saved, observed.progress->checkpoint_step, 0});
  // Before the first steps of a process, its step is not that of the checkpoint yet.
  const bool is_starting = usage.reported && (*usage.reported)[UsageClass::kProductive] == 0;
  const int64_t from = is_first || has_fallen || is_starting ? std::min(step, checkpoint) : *usage.step;
  bool is_continued = false;  // the counters are those of the process before, which separates repeated steps itself
  const int64_t received = to_milliseconds(observed.step_received_at.value_or(observed.now));
  if (observed.progress->usage_seconds) {
    is_continued = !add_reported_classes(observed, from, is_first, timeline, usage);
  } else if (is_first || has_fallen) {
    timeline.extend_to(received, is_first ? UsageClass::kStarting : UsageClass::kRecovery);
  } else if (step > from) {
    add_steps(std::min(received, timeline.now()) - timeline.end(), from, step, usage, timeline);
  }
  timeline.set_proven();
  usage.step = is_continued ? std::max(*usage.step, step) : step;
  usage.highest_step = std::max(usage.highest_step, step);
}

// The attempt does not run any more: adds the time after its last report.
void close_attempt(const Observed& observed, const api::Status& next, Timeline& timeline, api::Usage& usage) {
  if (next.phase == Phase::kStalled) return timeline.extend_to(timeline.now(), UsageClass::kStalled);
  if (!usage.step)
    return timeline.extend_to(timeline.now(),
                              observed.job.status.progress ? UsageClass::kStarting : UsageClass::kUnreported);
  if (next.phase != Phase::kComplete) return timeline.extend_to(timeline.now(), UsageClass::kRecovery);
  const bool has_report = has_progress(observed, observed.job.status);
  const auto last_phase = has_report ? usage_class_of(observed.progress->phase) : std::nullopt;
  if (last_phase && *last_phase != UsageClass::kProductive) return timeline.extend_to(timeline.now(), *last_phase);
  const int64_t last = next.progress ? std::max(next.progress->step, *usage.step) : *usage.step;
  add_steps(timeline.now() - timeline.end(), *usage.step, last, usage, timeline);
  usage.highest_step = std::max(usage.highest_step, last);
}

Timeline make_timeline(const Observed& observed, const Membership& members, const api::Status& next,
                       api::Usage& usage) {
  const api::Status& before = observed.job.status;
  const int64_t now = to_milliseconds(observed.now);
  const bool is_future = usage.until > now + std::chrono::milliseconds(kClockTolerance).count();  // of a wrong clock
  Timeline timeline(is_future ? now : std::max(usage.until, now - kMaxInterval), now);
  if (is_terminal(before.phase) || before.phase == Phase::kSuspended) {
    timeline.extend_to(now, is_terminal(before.phase) ? UsageClass::kIdle : UsageClass::kRecovery);
    return timeline;
  }
  if (!is_running(before.phase)) add_start(observed, members, timeline, usage);
  if (before.phase == Phase::kStalled) timeline.extend_to(now, UsageClass::kStalled);
  if (!is_running(before.phase) && !is_running(next.phase) && next.attempt == before.attempt &&
      !is_terminal(next.phase))
    return timeline;
  add_reports(observed, timeline, usage);
  if (next.phase != Phase::kRunning) close_attempt(observed, next, timeline, usage);
  return timeline;
}

// The ledger of a job begins with the job, or with the first operator that keeps one.
api::Usage begin_usage(const Observed& observed) {
  const Job& job = observed.job;
  api::Usage out{.attempt = job.status.attempt};
  const bool is_new = job.status.phase == Phase::kNone;
  out.until = to_milliseconds(is_new ? std::min(job.metadata.creation_timestamp.value_or(observed.now), observed.now)
                                     : observed.now);
  return out;
}

std::optional<double> ratio(int64_t part, int64_t whole) {
  if (whole <= 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

api::Usage account_usage(const Observed& observed, const Membership& members, const api::Status& next) {
  const Job& job = observed.job;
  api::Usage usage = job.status.usage ? *job.status.usage : begin_usage(observed);
  if (!is_terminal(job.status.phase)) {
    const int64_t requested =
        observed.accelerators_per_pod > 0 ? observed.accelerators_per_pod : job.spec.processes_per_node;
    usage.accelerators_per_pod = std::clamp<int64_t>(requested, 1, kMaxAccelerators);
  }
  if (usage.attempt != job.status.attempt) usage.step.reset();  // another client has changed the status
  const Timeline timeline = make_timeline(observed, members, next, usage);
  add_pods(observed, members, timeline, usage);
  usage.until = timeline.end();
  if (usage.attempt != next.attempt) {
    usage.step.reset();
    usage.reported.reset();
  }
  usage.attempt = next.attempt;
  return usage;
}

bool is_usage_due(const Observed& observed, const Membership& members) {
  if (!observed.job.status.usage || observed.job.status.usage->pods <= 0) return false;
  const auto is_live_pod = [](const Pod* pod) { return pod != nullptr && has_node(*pod) && !is_terminated(*pod); };
  return std::ranges::none_of(members.current, is_live_pod) && std::ranges::none_of(members.old, is_live_pod) &&
         std::ranges::none_of(members.newer, is_live_pod);
}

std::optional<double> goodput(const api::Usage& usage) {
  return ratio(usage.classes[UsageClass::kProductive], usage.allocated);
}

std::optional<double> effective_training_time_ratio(const api::Usage& usage) {
  return ratio(usage.classes[UsageClass::kProductive], usage.allocated + usage.queued);
}

}  // namespace oarlock::control
