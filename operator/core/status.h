// The status that follows from what is seen. Times in it are whole seconds, as the API server keeps them.
#pragma once

#include <string>

#include "operator/core/membership.h"

namespace oarlock::control {

// Moves to a phase: its condition becomes true, those of all other phases false; times change only where the truth
// does. Conditions that are no phase's are left alone. Complete and Failed set completionTime.
void enter(api::Status& status, api::Phase phase, const std::string& reason, const std::string& message,
           SystemTime now);

const api::Condition* find_condition(const api::Status& status, api::Phase phase);

// Brings counts, finished ranks, world size, generation, progress and the Pending/Restarting text up to date, and moves
// to Running once every pod of the attempt has started. Does not judge success or failure. REQUIRES: not terminal.
api::Status refresh(const Observed& observed, const Membership& members);

// progress with what rank 0's termination message adds: the last pull may be older than the end.
void read_last_words(const Membership& members, api::Status& status, SystemTime now);

// Appends and forgets the oldest beyond api::kMaxAttemptRecords.
void remember(api::Status& status, api::AttemptRecord record, SystemTime now);

}  // namespace oarlock::control
