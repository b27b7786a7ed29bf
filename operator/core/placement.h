// Groups whose pods cannot be placed on nodes: after scheduling.pendingTimeoutSeconds they release what they hold, so
// that two jobs never keep parts of each other's room for ever.
#pragma once

#include <chrono>
#include <optional>

#include "operator/core/membership.h"

namespace oarlock::control {

// Returns the job's limit, or else the operator's; absent: there is none.
std::optional<std::chrono::seconds> pending_timeout(const Observed& observed);

// Returns when the attempt ends if its pods have not all been placed until then; absent if they have, if the job has no
// such limit, if the group holds nothing because it has no pods, or if it will shrink or avoid fewer nodes instead. The
// time counts from the creation of its first pod.
std::optional<SystemTime> placement_deadline(const Observed& observed, const Membership& members);

// Returns whether the attempt ended because its pods were not placed in time.
bool ended_unplaced(const api::AttemptRecord& record);

// Returns the delay after such an attempt: half of the time for which the job has waited, at least ten seconds and at
// most ten minutes, and up to as much again, which depends on the job, so that jobs that wait for the same room do not
// take parts of it at the same time.
std::chrono::seconds placement_delay(const Job& job, const api::AttemptRecord& record);

// Returns the first attempt whose ended pods remain for their logs: the last one, or before retries the one that
// failed.
int first_kept_attempt(const api::Status& status);

// Adds the record of an attempt. One that ended unplaced takes the place of the one before it if that did, too, and
// then begins with it: however often a job retries, the records of its failures remain.
void add_record(api::AttemptRecord record, std::vector<api::AttemptRecord>& records);

}  // namespace oarlock::control
