// Progress of a run: the time spent in each phase, the throughput, and a progress line that is redrawn on the terminal.
// Without a terminal, progress is logged.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"

namespace oarlock {

// The activity of a rank. A rank is in exactly one phase at any time, so that the phases add up to the time of the run.
enum class Phase {
  kStartup,
  kRendezvous,
  kRestore,
  kDataWait,
  kForward,
  kBackward,
  kComm,  // this rank's gradients are complete, those of the other ranks are not
  kOptimizer,
  kEval,
  kCheckpoint,
  kOther
};

inline constexpr std::array<std::string_view, 11> kPhaseNames = {"startup", "rendezvous", "restore", "data_wait",
                                                                 "forward", "backward",   "comm",    "optimizer",
                                                                 "eval",    "checkpoint", "other"};

// Breakdown of a rank's time by phase. Thread-safe.
class PhaseClock {
 public:
  // Starts in Phase::kStartup, at `begin` or now. The clock must outlive this object.
  explicit PhaseClock(const Clock& clock) : PhaseClock(clock, clock.steady()) {}
  PhaseClock(const Clock& clock, SteadyTime begin) : clock_(clock), since_(begin) {}

  void enter(Phase phase);

  // Ends the current phase. No time is counted afterwards, so that all later readers receive the same seconds.
  void stop();

  // The current phase.
  Phase phase() const;

  // Seconds spent per phase until now or until stop(), including the current one; indexed as kPhaseNames.
  std::array<double, kPhaseNames.size()> seconds() const;

 private:
  const Clock& clock_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kStartup;
  SteadyTime since_;
  bool is_stopped_ = false;
  std::array<double, kPhaseNames.size()> seconds_{};
};

// The time of a process by phase.
struct TimeTable {
  std::vector<std::pair<std::string_view, double>> rows;  // phases and their seconds, in the order of kPhaseNames
  double total = 0;                                       // the sum of the rows
};
TimeTable time_table(const std::array<double, kPhaseNames.size()>& seconds);

// "120.0 s = data_wait 12.0 s (10 %) + forward ...", without phases that took less than a millisecond. Pure.
std::string to_line(const TimeTable& table);
std::string to_markdown(const TimeTable& table);

// Samples and steps per second over about the last ten seconds.
class Throughput {
 public:
  void add_step(int64_t samples, double seconds);

  double samples_per_second() const { return seconds_ > 0 ? samples_ / seconds_ : 0; }
  double seconds_per_step() const { return steps_ > 0 ? seconds_ / steps_ : 0; }

 private:
  // Exponentially decaying sums with the same decay, so that their ratios need no bias correction.
  double samples_ = 0;
  double steps_ = 0;
  double seconds_ = 0;
};

struct ProgressView {
  int64_t step = 0;
  int64_t target_steps = 0;  // 0 if unknown
  int64_t epoch = 0;         // completed epochs
  int64_t epochs = 0;        // 0 if the length of the run is given in steps
  std::optional<double> loss{};
  double learning_rate = 0;
  double samples_per_second = 0;
  double seconds_per_step = 0;
};

// Returns the number of the current epoch, counted from 1. Pure.
int64_t shown_epoch(const ProgressView& view);

// "epoch 1/3  step 120/1407 (8 %)  ETA 0:42  loss 0.5123  23012 samples/s  lr 0.001". A terminal of 80 columns, with
// the prefix of a launcher, cuts the end. Pure.
std::string progress_line(const ProgressView& view);

// Long work that is not a training step.
struct ActivityView {
  std::string_view name;
  int64_t done = 0;
  int64_t total = 0;   // 0: unknown
  double seconds = 0;  // since it began
};

// "evaluation  [=========           ]  12/27 (44 %)  ETA 0:03", or without a total "evaluation  0:04". Pure.
std::string activity_line(const ActivityView& view);

// Returns the metrics as "accuracy 0.9012  loss 0.2812 and 94 more": the metric `first`, if it exists, then the
// others by name, at most `most`. Pure.
std::string metrics_text(const std::map<std::string, double>& metrics, const std::string& first, size_t most);

// "0:42", "1:02:03", "2d 03:04". Pure.
std::string format_duration(double seconds);

// The destination of progress lines.
struct ProgressOutput {
  std::function<void(std::string_view)> write;  // empty: nowhere
  // The width of the terminal. Empty, or 0: a launcher, which cuts and erases progress lines.
  std::function<int()> columns;
};

// Returns standard error if it shows progress lines (common/terminal.h), otherwise an empty output.
ProgressOutput progress_output();

// Thread-safe.
class ProgressLine {
 public:
  // The clock must outlive the line.
  ProgressLine(ProgressOutput output, const Clock& clock) : output_(std::move(output)), clock_(clock) {}

  bool is_enabled() const { return output_.write != nullptr; }

  // Draws the line at most ten times per second.
  void show(const ProgressView& view);

  // As show(), but not within half a second after clear(): a log line may be in progress.
  void show(const ActivityView& view);

  // Erases the line before other output.
  void clear();

  // Erases the progress line and writes lines that are not overwritten.
  void print(const std::vector<std::string>& lines);

  // Erases the line and stops drawing it.
  void close();

 private:
  int columns() const { return output_.columns ? output_.columns() : 0; }
  void draw(const std::string& line);
  void erase();

  ProgressOutput output_;
  const Clock& clock_;
  std::mutex mutex_;
  bool visible_ = false;
  bool closed_ = false;
  std::optional<SteadyTime> drawn_;
  std::optional<SteadyTime> cleared_;
};

}  // namespace oarlock
