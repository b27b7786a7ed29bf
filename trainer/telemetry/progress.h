// Progress of a run: the time of each phase, the throughput, and one line on a terminal that overwrites itself. Without
// a terminal, progress goes to the log.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"

namespace oarlock {

// What a rank does. It is in exactly one phase at any time, so that the phases add up to the uptime.
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
  // Starts in Phase::kStartup. The clock must outlive this object.
  explicit PhaseClock(const Clock& clock) : clock_(clock), since_(clock.steady()) {}

  void enter(Phase phase);

  // The current phase.
  Phase phase() const;

  // Seconds spent per phase, including the current one; indexed as kPhaseNames.
  std::array<double, kPhaseNames.size()> seconds() const;

 private:
  const Clock& clock_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kStartup;
  SteadyTime since_;
  std::array<double, kPhaseNames.size()> seconds_{};
};

// Where the time of a process was spent.
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
  int64_t epoch = 0;         // from 0
  int64_t epochs = 0;        // 0 if the length of the run is given in steps
  std::optional<double> loss;
  double learning_rate = 0;
  double samples_per_second = 0;
  double seconds_per_step = 0;
};

// "epoch 1/3  step 120/1407 (8%)  loss 0.5123  lr 0.001  23012 samples/s  ETA 0:42". Pure.
std::string progress_line(const ProgressView& view);

// "0:42", "1:02:03", "2d 03:04". Pure.
std::string format_duration(double seconds);

class ProgressLine {
 public:
  using Writer = std::function<void(std::string_view)>;

  // An empty writer disables the line. The clock must outlive the line.
  ProgressLine(Writer write, const Clock& clock) : write_(std::move(write)), clock_(clock) {}

  // Draws the line at most ten times per second.
  void show(const ProgressView& view);

  // Erases the line before other output.
  void clear();

 private:
  Writer write_;
  const Clock& clock_;
  bool visible_ = false;
  std::optional<SteadyTime> drawn_;
};

// Returns a writer to stderr if that is a terminal, otherwise an empty writer.
ProgressLine::Writer terminal_writer();

}  // namespace oarlock
