// Progress of long operations other than training steps, which the terminal shows while they run.
#pragma once

#include <cstdint>

namespace oarlock {

enum class LongWork { kPrepareData, kEvaluate, kSave };

struct WorkProgress {
  int64_t done = 0;
  int64_t total = 0;  // 0: unknown
};

// Records that `done` of `total` units, such as samples or bytes, are done. Thread-safe, and cheap enough to be called
// for every unit.
void report_work(LongWork work, int64_t done, int64_t total);

// Increases the number of units that are done. Thread-safe.
void advance_work(LongWork work, int64_t units);

// Returns the progress that was last reported. Thread-safe.
WorkProgress work_progress(LongWork work);

}  // namespace oarlock
