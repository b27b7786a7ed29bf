// The ledger of a job, status.usage: what its accelerators have done. The group of a synchronous job does one thing at
// a time, so the ledger divides the time of the group into classes, and counts each pod for the part in which it has a
// node. docs/guides/goodput.md defines the classes, with the sources of goodput and ETTR.
#pragma once

#include <optional>

#include "operator/core/membership.h"

namespace oarlock::control {

// Returns the ledger that belongs to the status `next`, which follows that of the observed job: adds the time since the
// last call. While an attempt runs, this is the time up to the last report of its rank 0; the rest is added once rank 0
// has reported it, or the attempt has ended.
//
// The counters never fall, and the classes always sum to `allocated`. A pod can report any times: only its job
// changes, and together by no more than the time that has passed.
api::Usage account_usage(const Observed& observed, const Membership& members, const api::Status& next);

// Returns whether the last pod that used accelerators after the end of its job has ended since the ledger was written.
// REQUIRES: the phase is terminal.
bool is_usage_due(const Observed& observed, const Membership& members);

// The time of new steps, over the allocated time, and over that and the queued time. Absent without such time.
std::optional<double> goodput(const api::Usage& usage);
std::optional<double> effective_training_time_ratio(const api::Usage& usage);

}  // namespace oarlock::control
