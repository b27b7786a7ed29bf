#include "common/work_progress.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace oarlock {
namespace {

struct Slot {
  std::atomic<int64_t> done{0};
  std::atomic<int64_t> total{0};
};

Slot& slot_of(LongWork work) {
  static std::array<Slot, 3> slots;
  return slots[static_cast<size_t>(work)];
}

}  // namespace

void report_work(LongWork work, int64_t done, int64_t total) {
  Slot& slot = slot_of(work);
  slot.total.store(total, std::memory_order_relaxed);
  slot.done.store(done, std::memory_order_relaxed);
}

void advance_work(LongWork work, int64_t units) { slot_of(work).done.fetch_add(units, std::memory_order_relaxed); }

WorkProgress work_progress(LongWork work) {
  const Slot& slot = slot_of(work);
  return {slot.done.load(std::memory_order_relaxed), slot.total.load(std::memory_order_relaxed)};
}

}  // namespace oarlock
