#include "cli/launch/progress_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace oarlock::launch {
namespace {

constexpr std::chrono::seconds kMinStepTime{1};  // for which steps are counted to measure their duration
constexpr char kPhaseOfSteps[] = "train";

double unix_seconds(SystemTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// A value of a label in the text format of Prometheus.
std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

bool has_step(const auto& reported) { return reported.second.values.step.has_value(); }

std::vector<RankActivity> first_ranks(const std::map<int, RankActivity>& activities) {
  std::vector<RankActivity> out;
  for (const auto& [rank, activity] : activities) {
    if (out.size() < ProgressBoard::kMaxRanks) out.push_back(activity);
  }
  return out;
}

}  // namespace

void ProgressBoard::add(int rank, const ProgressReport& report) {
  const SystemTime now = clock_.now();
  const SteadyTime steady = clock_.steady();
  const std::lock_guard lock(mutex_);
  const int reporter = report.rank.value_or(rank);
  if (!reported_.contains(reporter) && reported_.size() >= kMaxRanks) return;
  Reported& reported = reported_[reporter];
  ProgressReport& values = reported.values;
  count_usage(reporter, report, steady);
  if (report.step) {
    reported.is_current = true;
    const int64_t previous = values.step.value_or(*report.step);
    if (!values.step || *report.step < previous) {
      reported.base_step = *report.step;
      reported.base_time = steady;
    } else if (*report.step > reported.base_step && steady - reported.base_time >= kMinStepTime) {
      const double seconds = std::chrono::duration<double>(steady - reported.base_time).count();
      reported.step_seconds = seconds / static_cast<double>(*report.step - reported.base_step);
      reported.base_step = *report.step;
      reported.base_time = steady;
    }
    if (!values.step || *report.step != previous) reported.step_at = now;
    reported.steps += std::max<int64_t>(0, *report.step - previous);
    values.phase = kPhaseOfSteps;
  }
  if (report.checkpoint_step && report.checkpoint_step != values.checkpoint_step) reported.checkpoint_at = now;
  const auto update = [](auto& to, const auto& from) {
    if (from) to = from;
  };
  update(values.step, report.step);
  update(values.target_steps, report.target_steps);
  update(values.checkpoint_step, report.checkpoint_step);
  update(values.loss, report.loss);
  update(values.samples_per_second, report.samples_per_second);
  if (!report.phase.empty()) values.phase = report.phase;
  for (const auto& [name, value] : report.metrics) {
    if (!names_.contains(name) && names_.size() >= kMaxReportedMetrics) continue;
    names_.insert(name);
    values.metrics[name] = value;
  }
  reported.updated = now;
}

void ProgressBoard::count_usage(int reporter, const ProgressReport& report, SteadyTime now) {
  // Without a step so far, that of the first rank.
  const auto first = std::ranges::find_if(reported_, [](const auto& one) { return has_step(one); });
  const int served = first != reported_.end() ? first->first : report.step ? reporter : reported_.begin()->first;
  if (reporter != served && !(report.step && reporter < served)) return;
  if (report.step) usage_.record_step(*report.step, now);
  if (const std::optional<UsageClass> one = usage_class_of(report.phase); one && one != usage_.present())
    usage_.enter(*one, now);
}

void ProgressBoard::add_invalid_line() {
  const std::lock_guard lock(mutex_);
  ++invalid_lines_;
}

void ProgressBoard::add_process(int rank, pid_t pid) {
  const std::lock_guard lock(mutex_);
  if (started_.contains(rank)) usage_.restart(clock_.steady());
  started_[rank] = pid;
  for (auto& [other, reported] : reported_) {  // a process that starts the ranks has ended all of them
    if (other != rank && !node_.starts_ranks) continue;
    reported.values.phase = kPhaseOfStart;
    reported.is_current = false;
  }
}

void ProgressBoard::set_restarts(const InPodRestarts& restarts) {
  const std::lock_guard lock(mutex_);
  restarts_ = restarts;
}

bool ProgressBoard::has_reports() const {
  const std::lock_guard lock(mutex_);
  return !reported_.empty();
}

bool ProgressBoard::has_restarts() const {
  const std::lock_guard lock(mutex_);
  return restarts_.total > 0;
}

ProgressReport ProgressBoard::newest() const {
  const std::lock_guard lock(mutex_);
  ProgressReport out;
  for (const auto& [rank, reported] : reported_) {
    out.step = std::max(out.step, reported.values.step);  // an absent one is the lowest
    out.checkpoint_step = std::max(out.checkpoint_step, reported.values.checkpoint_step);
  }
  return out;
}

std::map<int, RankActivity> ProgressBoard::activities() {
  const std::lock_guard reading(processes_mutex_);
  const SteadyTime now = clock_.steady();
  if (!activities_at_ || *activities_at_ + kProcessesInterval <= now) {
    std::unique_lock lock(mutex_);
    const std::map<int, pid_t> started = started_;
    lock.unlock();
    activities_ = processes_.read(started);
    activities_at_ = now;
  }
  return activities_;
}

RankStatus ProgressBoard::status_of(int rank, const Reported& reported) const {
  const ProgressReport& values = reported.values;
  RankStatus out;
  out.rank = rank;
  out.world_size = node_.world_size;
  out.attempt = node_.attempt;
  out.phase = values.phase;
  out.step = values.step.value_or(0);
  out.target_steps = values.target_steps.value_or(0);
  out.checkpoint_step = values.checkpoint_step.value_or(-1);
  out.last_step_seconds = reported.step_seconds;
  out.loss = values.loss;
  out.samples_per_second = values.samples_per_second.value_or(0);
  out.updated_at = to_rfc3339(reported.updated);
  if (restarts_.total > 0) out.in_pod_restarts = restarts_;
  out.usage_seconds = usage_.seconds(clock_.steady());
  return out;
}

std::string ProgressBoard::status() {
  std::map<int, RankActivity> ranks = activities();
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, reported] : reported_) {
    RankActivity& activity = ranks[rank];
    activity.rank = rank;
    if (reported.is_current) activity.step = reported.values.step;
    activity.updated_at = to_rfc3339(reported.updated);
  }
  // Without a step there is no progress, whose absence would be a stall.
  const auto first = std::ranges::find_if(reported_, [](const auto& one) { return has_step(one); });
  if (first == reported_.end()) return to_json(LauncherStatus{node_.attempt, restarts_}, first_ranks(ranks)) + "\n";
  return to_json(status_of(first->first, first->second), first_ranks(ranks)) + "\n";
}

std::string ProgressBoard::metrics() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  using Value = std::function<std::optional<double>(const Reported&)>;
  const auto add_family = [&](const char* name, const char* type, const char* help, const Value& value) {
    std::string series;
    for (const auto& [rank, reported] : reported_) {
      if (const std::optional<double> number = value(reported))
        series += fmt::format("{}{{rank=\"{}\"}} {}\n", name, rank, *number);
    }
    if (!series.empty()) out += fmt::format("# HELP {} {}\n# TYPE {} {}\n{}", name, help, name, type, series);
  };
  const auto number = [](const auto& value) {
    return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
  };
  const auto time = [](SystemTime value) {
    return value == SystemTime{} ? std::nullopt : std::optional(unix_seconds(value));
  };
  add_family("trainer_current_step", "gauge", "Number of optimizer steps done in all attempts.",
             [&](const Reported& one) { return number(one.values.step); });
  add_family("trainer_steps_total", "counter", "Number of optimizer steps done by this process.",
             [&](const Reported& one) { return std::optional(static_cast<double>(one.steps)); });
  add_family("trainer_target_steps", "gauge", "Number of optimizer steps of the whole run, 0 if not yet known.",
             [&](const Reported& one) { return number(one.values.target_steps); });
  add_family("trainer_loss", "gauge", "Mean training loss over the ranks at the last logged step.",
             [&](const Reported& one) { return one.values.loss; });
  add_family("trainer_last_step_timestamp_seconds", "gauge",
             "Unix time of the end of the last step in seconds, 0 before the first step.",
             [&](const Reported& one) { return time(one.step_at); });
  add_family("trainer_last_checkpoint_step", "gauge", "Step of the newest complete checkpoint.",
             [&](const Reported& one) { return number(one.values.checkpoint_step); });
  add_family("trainer_last_checkpoint_timestamp_seconds", "gauge",
             "Unix time in seconds at which the newest checkpoint was completed.",
             [&](const Reported& one) { return time(one.checkpoint_at); });
  add_family("trainer_reported_samples_per_second", "gauge", "Samples per second of the whole job, as reported.",
             [&](const Reported& one) { return one.values.samples_per_second; });
  add_family("trainer_world_size", "gauge", "Number of ranks in the job.",
             [&](const Reported&) { return std::optional<double>(node_.world_size); });
  add_family("trainer_in_pod_restarts_total", "counter", "Number of restarts of all ranks in the same pods.",
             [&](const Reported&) {
               return restarts_.total > 0 ? std::optional(static_cast<double>(restarts_.total)) : std::nullopt;
             });
  if (invalid_lines_ > 0) {
    constexpr char kName[] = "trainer_invalid_progress_lines_total";
    out += fmt::format("# HELP {0} Number of progress lines that were ignored.\n# TYPE {0} counter\n{0} {1}\n", kName,
                       invalid_lines_);
  }
  if (!names_.empty())
    out += "# HELP trainer_reported Metric that the program reported.\n# TYPE trainer_reported gauge\n";
  for (const auto& [rank, reported] : reported_) {
    for (const auto& [name, value] : reported.values.metrics)
      out += fmt::format("trainer_reported{{name=\"{}\",rank=\"{}\"}} {}\n", escaped(name), rank, value);
  }
  return out;
}

}  // namespace oarlock::launch
