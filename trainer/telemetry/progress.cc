#include "trainer/telemetry/progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "common/terminal.h"

namespace oarlock {

void PhaseClock::enter(Phase phase) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  const SteadyTime now = clock_.steady();
  seconds_[static_cast<size_t>(phase_)] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  phase_ = phase;
}

void PhaseClock::stop() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_stopped_, true)) return;
  seconds_[static_cast<size_t>(phase_)] += std::chrono::duration<double>(clock_.steady() - since_).count();
}

Phase PhaseClock::phase() const {
  const std::lock_guard lock(mutex_);
  return phase_;
}

std::array<double, kPhaseNames.size()> PhaseClock::seconds() const {
  const std::lock_guard lock(mutex_);
  std::array<double, kPhaseNames.size()> out = seconds_;
  if (!is_stopped_) out[static_cast<size_t>(phase_)] += std::chrono::duration<double>(clock_.steady() - since_).count();
  return out;
}

TimeTable time_table(const std::array<double, kPhaseNames.size()>& seconds) {
  TimeTable out;
  for (size_t i = 0; i < seconds.size(); ++i) {
    out.rows.emplace_back(kPhaseNames[i], seconds[i]);
    out.total += seconds[i];
  }
  return out;
}

std::string to_line(const TimeTable& table) {
  constexpr double kShown = 1e-3;
  std::string out = fmt::format("{:.1f} s", table.total);
  const char* separator = " = ";
  for (const auto& [name, seconds] : table.rows) {
    if (seconds < kShown) continue;
    out += fmt::format("{}{} {:.1f} s ({:.0f} %)", std::exchange(separator, " + "), name, seconds,
                       100 * seconds / table.total);
  }
  return out;
}

std::string to_markdown(const TimeTable& table) {
  std::string out = "| phase | seconds | share |\n|---|---:|---:|\n";
  for (const auto& [name, seconds] : table.rows)
    out += fmt::format("| {} | {:.3f} | {:.1f} % |\n", name, seconds, 100 * seconds / std::max(table.total, 1e-9));
  return out + fmt::format("| total | {:.3f} | |\n", table.total);
}

namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr auto kQuietAfterOutput = std::chrono::milliseconds(500);
constexpr int64_t kBarColumns = 20;
constexpr double kThroughputWindowSeconds = 10;

}  // namespace

void Throughput::add_step(int64_t samples, double seconds) {
  const double decay = std::exp(-seconds / kThroughputWindowSeconds);
  samples_ = samples_ * decay + static_cast<double>(samples);
  steps_ = steps_ * decay + 1;
  seconds_ = seconds_ * decay + seconds;
}

std::string format_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const int64_t days = total / 86400;
  const int64_t hours = total / 3600 % 24;
  const int64_t minutes = total / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

int64_t shown_epoch(const ProgressView& view) {
  return view.epochs > 0 ? std::min(view.epoch + 1, view.epochs) : view.epoch + 1;
}

std::string progress_line(const ProgressView& view) {
  std::string line;
  const auto add = [&line](const std::string& part) { line += (line.empty() ? "" : "  ") + part; };
  if (view.epochs > 0) add(fmt::format("epoch {}/{}", shown_epoch(view), view.epochs));
  if (view.target_steps > 0) {
    add(fmt::format("step {}/{} ({} %)", view.step, view.target_steps, 100 * view.step / view.target_steps));
  } else {
    add(fmt::format("step {}", view.step));
  }
  if (view.target_steps > 0 && view.seconds_per_step > 0) {
    add("ETA " + format_duration(static_cast<double>(view.target_steps - view.step) * view.seconds_per_step));
  }
  if (view.loss) add(fmt::format("loss {:.4f}", *view.loss));
  add(fmt::format("{:.0f} samples/s", view.samples_per_second));
  add(fmt::format("lr {:.3g}", view.learning_rate));
  return line;
}

std::string activity_line(const ActivityView& view) {
  std::string line(view.name);
  if (view.total <= 0) return line + "  " + format_duration(view.seconds);
  const int64_t done = std::clamp<int64_t>(view.done, 0, view.total);
  const auto filled = static_cast<size_t>(kBarColumns * done / view.total);
  line += fmt::format("  [{:<{}}]  {}/{} ({} %)", std::string(filled, '='), kBarColumns, done, view.total,
                      100 * done / view.total);
  if (done > 0) {
    const double left = static_cast<double>(view.total - done) / static_cast<double>(done);
    line += "  ETA " + format_duration(view.seconds * left);
  }
  return line;
}

std::string metrics_text(const std::map<std::string, double>& metrics, const std::string& first, size_t most) {
  std::vector<std::string> parts;
  const auto add = [&](const std::string& name, double value) {
    if (parts.size() < most) parts.push_back(fmt::format("{} {:.6g}", name, value));
  };
  if (const auto found = metrics.find(first); found != metrics.end()) add(found->first, found->second);
  for (const auto& [name, value] : metrics) {
    if (name != first) add(name, value);
  }
  std::string text = fmt::format("{}", fmt::join(parts, "  "));
  if (metrics.size() > parts.size()) text += fmt::format(" and {} more", metrics.size() - parts.size());
  return text;
}

void ProgressLine::draw(const std::string& line) {
  const SteadyTime now = clock_.steady();
  if (closed_ || (drawn_ && now - *drawn_ < kRedrawInterval)) return;
  drawn_ = now;
  visible_ = true;
  const int width = columns();
  // A line that wraps cannot be replaced. Some terminals wrap when the last column is written.
  const std::string cut = width > 0 ? cut_to_width(line, static_cast<size_t>(std::max(width - 1, 1))) : line;
  // The cursor returns to the start of the line, so that other output overwrites the line instead of extending it. A
  // launcher waits for the character after the first "\r", which might be "\n".
  output_.write("\r" + cut + "\x1b[K\r\r");
}

void ProgressLine::show(const ProgressView& view) {
  if (!is_enabled()) return;
  const std::lock_guard lock(mutex_);
  draw(progress_line(view));
}

void ProgressLine::show(const ActivityView& view) {
  if (!is_enabled()) return;
  const std::lock_guard lock(mutex_);
  if (cleared_ && clock_.steady() - *cleared_ < kQuietAfterOutput) return;
  draw(activity_line(view));
}

void ProgressLine::erase() {
  cleared_ = clock_.steady();
  if (!visible_) return;
  visible_ = false;
  drawn_.reset();
  if (columns() > 0) output_.write("\r\x1b[K");
}

void ProgressLine::clear() {
  if (!is_enabled()) return;
  const std::lock_guard lock(mutex_);
  erase();
}

void ProgressLine::print(const std::vector<std::string>& lines) {
  if (!is_enabled()) return;
  const std::lock_guard lock(mutex_);
  erase();
  for (const std::string& line : lines) output_.write(line + "\n");
}

void ProgressLine::close() {
  if (!is_enabled()) return;
  const std::lock_guard lock(mutex_);
  erase();
  closed_ = true;
}

ProgressOutput progress_output() {
  if (!shows_progress_lines()) return {};
  return {.write =
              [](std::string_view text) {
                std::fwrite(text.data(), 1, text.size(), stderr);
                std::fflush(stderr);
              },
          .columns = [] { return terminal_columns(STDERR_FILENO); }};
}

}  // namespace oarlock
