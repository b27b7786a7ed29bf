// What rank 0 shows of a run: one line that overwrites itself on a terminal; elsewhere the log has its lines.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"

namespace oarlock {

struct ProgressView {
  int64_t step = 0;
  int64_t target_steps = 0;  // 0: not known
  int64_t epoch = 0;         // from 0
  int64_t epochs = 0;        // 0: the length is given in steps
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

  // A writer that is empty shows nothing. The clock must outlive the line.
  ProgressLine(Writer write, const Clock& clock) : write_(std::move(write)), clock_(clock) {}

  // Draws at most ten times a second.
  void show(const ProgressView& view);

  // Removes the line, so that something else can be written.
  void clear();

 private:
  Writer write_;
  const Clock& clock_;
  bool visible_ = false;
  std::optional<SteadyTime> drawn_;
};

// Writes to stderr if it is a terminal, else nothing.
ProgressLine::Writer terminal_writer();

}  // namespace oarlock
