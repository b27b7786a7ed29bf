// A stop that all ranks obey at the same point of their work, although the signal reaches them at different moments, or
// reaches only one of them.
#pragma once

#include <cstdint>

#include "common/clock.h"
#include "trainer/distributed/process_group.h"
#include "trainer/process/signals.h"

namespace oarlock {

class StopAgreement {
 public:
  // The references must outlive the agreement.
  StopAgreement(const StopFlag& stop, const RankGroup& group, const Clock& clock)
      : stop_(stop), group_(group), clock_(clock) {}
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // Whether this rank has received a signal. The other ranks may not know of it yet.
  bool requested() const { return stop_.raised(); }

  // A collective, called by all ranks at the same point: whether any rank has received a signal or has the `wish` to
  // stop for another reason. `seconds` becomes the largest of all ranks' values.
  bool agree(bool wish, double& seconds);
  bool agree(bool wish = false);

  // Whether agree() has returned true. All ranks have the same answer between two calls of agree().
  bool agreed() const { return agreed_; }

  const RankGroup& group() const { return group_; }
  const Clock& clock() const { return clock_; }

 private:
  const StopFlag& stop_;
  const RankGroup& group_;
  const Clock& clock_;
  bool agreed_ = false;
};

// Calls agree() between equal units of work, such as steps or batches, about twice a second. All ranks complete the
// same number of units, so they compute the same interval in units from the slowest rank's time per unit.
//
// That time is wall-clock time between the ends of two agreements, which wait for the device. The time that the host
// takes for a unit would not do: a host that only enqueues work runs ahead of the device.
class StopPace {
 public:
  explicit StopPace(StopAgreement& agreement) : agreement_(&agreement), since_(agreement.clock().steady()) {}

  // Called by all ranks after each unit. True: all ranks stop here.
  bool after_unit(bool wish = false);

 private:
  StopAgreement* agreement_;
  SteadyTime since_;             // the end of the last agreement
  int64_t units_ = 0;            // since then
  int64_t next_ = 1;             // units until the next agreement
  double seconds_per_unit_ = 0;  // on this rank, between the last two agreements; 0: unknown
};

}  // namespace oarlock
