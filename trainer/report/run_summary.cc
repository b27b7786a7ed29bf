#include "trainer/report/run_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "trainer/telemetry/progress.h"

namespace oarlock {
namespace {

constexpr size_t kMaxListed = 10;
constexpr size_t kMaxPhases = 3;
constexpr double kMinShare = 0.05;

std::string row(const std::string& name, const std::string& value) { return fmt::format("  {:<12}{}", name, value); }

std::string length_of(const RunHeader& header) {
  std::string text = header.epochs > 0 ? fmt::format("{} epoch{}, {} steps", header.epochs,
                                                     header.epochs == 1 ? "" : "s", grouped_digits(header.target_steps))
                                       : fmt::format("{} steps", grouped_digits(header.target_steps));
  if (header.first_step > 0) text += fmt::format(", from step {}", grouped_digits(header.first_step));
  return text;
}

std::string batch_of(const RunHeader& header) {
  std::string parts;
  if (header.world_size > 1) parts += fmt::format(" = {} ranks x {}", header.world_size, header.batch_per_rank);
  if (header.accumulation_steps > 1) {
    if (parts.empty()) parts = fmt::format(" = {}", header.batch_per_rank);
    parts += fmt::format(" x {} accumulated", header.accumulation_steps);
  }
  return fmt::format("{}{}", header.effective_batch, parts);
}

std::vector<std::string> metric_rows(const RunSummary& summary) {
  std::vector<std::string> rows;
  const auto add = [&](const std::string& name, double value) {
    if (rows.size() < kMaxListed)
      rows.push_back(row(name + (name.size() < 12 ? "" : " "), fmt::format("{:.6g}", value)));
  };
  if (const auto found = summary.metrics.find(summary.monitor); found != summary.metrics.end())
    add(found->first, found->second);
  for (const auto& [name, value] : summary.metrics) {
    if (name != summary.monitor) add(name, value);
  }
  if (summary.metrics.size() > rows.size()) {
    rows.push_back(row("", fmt::format("and {} more metrics; the log without a terminal has them all",
                                       summary.metrics.size() - rows.size())));
  }
  return rows;
}

std::string time_of(const RunSummary& summary) {
  std::vector<std::pair<std::string, double>> shares = summary.phase_shares;
  std::ranges::stable_sort(shares, std::ranges::greater(), &std::pair<std::string, double>::second);
  std::vector<std::string> parts;
  for (const auto& [name, share] : shares) {
    if (parts.size() < kMaxPhases && share >= kMinShare) parts.push_back(fmt::format("{} {:.0f} %", name, 100 * share));
  }
  return fmt::format("{}{}", format_duration(summary.seconds),
                     parts.empty() ? "" : fmt::format("  ({})", fmt::join(parts, ", ")));
}

}  // namespace

std::string grouped_digits(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool begins_group = i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0;
    if (begins_group) out += ',';
    out += digits[i];
  }
  return out;
}

std::vector<std::string> header_lines(const RunHeader& header) {
  const std::string frozen = header.trainable_parameters == header.parameters
                                 ? ""
                                 : fmt::format(", {} of them trained", grouped_digits(header.trainable_parameters));
  return {
      fmt::format("{} on {}", header.task,
                  header.world_size == 1 ? "1 rank" : fmt::format("{} ranks", header.world_size)),
      row("device", fmt::format("{}, {}", header.device, header.precision)),
      row("model", fmt::format("{} parameters{}", grouped_digits(header.parameters), frozen)),
      row("data", fmt::format("{} samples for training, {} for evaluation", grouped_digits(header.train_samples),
                              grouped_digits(header.eval_samples))),
      row("batch", batch_of(header)),
      row("length", length_of(header)),
      row("optimizer", fmt::format("learning rate {:.4g}", header.learning_rate)),
      row("checkpoints", header.checkpoints.empty() ? "none: set checkpoint.dir to save them" : header.checkpoints)};
}

std::vector<std::string> summary_lines(const RunSummary& summary) {
  std::vector<std::string> out;
  out.push_back(summary.was_complete ? fmt::format("the training was complete already, at step {}; raise epochs or "
                                                   "steps to train more",
                                                   grouped_digits(summary.step))
                                     : fmt::format("the training is complete: step {}", grouped_digits(summary.step)));
  if (!summary.stopped_early.empty()) out.push_back(row("stopped", "early: " + summary.stopped_early));
  for (std::string& line : metric_rows(summary)) out.push_back(std::move(line));
  if (summary.best) {
    out.push_back(row("best", fmt::format("{} {:.6g} at step {}", summary.best->metric, summary.best->value,
                                          grouped_digits(summary.best->step))));
  }
  out.push_back(row("time", time_of(summary)));
  if (summary.samples_per_second > 0) {
    out.push_back(row(
        "speed", fmt::format("{} samples/s", grouped_digits(static_cast<int64_t>(summary.samples_per_second + 0.5)))));
  }
  if (summary.recoveries > 0) out.push_back(row("recoveries", fmt::format("{}, no step lost", summary.recoveries)));
  if (summary.world_size > 1) {
    out.push_back(row("ranks", fmt::format("{}, with {} parameters", summary.world_size,
                                           summary.parameters_equal ? "bitwise equal" : "different")));
  }
  out.push_back(row("checkpoint", summary.checkpoint.empty() ? "none" : summary.checkpoint));
  return out;
}

}  // namespace oarlock
