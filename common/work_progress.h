// How far the long work of this process has come that is not a training step: the terminal shows it while it lasts.
#pragma once

#include <cstdint>

namespace oarlock {

enum class LongWork { kPrepareData, kEvaluate, kSave };

struct WorkProgress {
  int64_t done = 0;
  int64_t total = 0;  // 0: unknown
};

// Records that `done` of `total` units are done, whatever the unit is. Thread-safe, and cheap enough for every unit.
void report_work(LongWork work, int64_t done, int64_t total);

// Adds `units` to what is done. Thread-safe.
void advance_work(LongWork work, int64_t units);

// Returns what was reported last. Thread-safe.
WorkProgress work_progress(LongWork work);

}  // namespace oarlock
