// The status of a job, derived from its previous status and the observed state. All times in a status are whole
// seconds, because the API server stores no fractions.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/membership.h"

namespace oarlock::control {

// Returns the status with up-to-date counts, finished ranks, world size, generation, progress, and message of the
// phases Pending and Restarting. Changes the phase only from none to Pending, and from Pending or Restarting to Running
// once every pod of the attempt has started. Does not decide about success, failure or stalls. REQUIRES: the phase is
// not terminal.
api::Status refresh_status(const Observed& observed, const Membership& members);

// Why an attempt does not run yet: the most severe of the possible causes.
struct WaitingReason {
  std::string reason;        // of the condition: CreateRefused, Unschedulable, ImagePullBackOff ... or kPodsStarting
  std::string message;       // with the number of pods that have started
  const Pod* pod = nullptr;  // the pod that has not started; null if it does not exist
};
WaitingReason find_waiting_reason(const Observed& observed, const Membership& members);

// How long a pod may exist before it is reported that no scheduler has considered it.
inline constexpr std::chrono::seconds kSchedulerTime{60};

// Returns when that is to be reported of a pod of the current attempt; absent if a scheduler has considered all of
// them, or one does not exist yet.
std::optional<SystemTime> scheduler_deadline(const Membership& members);

// The reason of an attempt whose pods are starting and report no problem.
inline constexpr char kPodsStarting[] = "PodsStarting";

// In the message of each WaitingReason.
inline constexpr char kPodsHaveStarted[] = " pods have started";

// Precedes the API server's message in those of the reason CreateRefused.
inline constexpr char kApiServerRefused[] = "the API server refused: ";

// Returns whether a container of every pod of the attempt has started at some time.
bool have_all_started(const Job& job, const Membership& members);

// ---- Phases and conditions -----------------------------------------------------------------------------------------

// Sets the phase and its condition, and sets the conditions of all other phases to false. lastTransitionTime changes
// only with the condition's status. Conditions that are not named after a phase stay as they are. Complete and Failed
// also set completionTime.
void enter_phase(api::Status& status, api::Phase phase, const std::string& reason, const std::string& message,
                 SystemTime now);

// Returns the condition of a phase, or null if the job has never been in it. The pointer is into `status`.
const api::Condition* find_condition(const api::Status& status, api::Phase phase);

// Sets a condition that is not named after a phase, or removes it if the message is empty. Returns whether the
// conditions changed.
bool set_condition(std::vector<api::Condition>& conditions, const char* type, const char* reason,
                   const std::string& message, SystemTime now);

// Sets the condition CheckpointsNotKept if the checkpoints of the job are lost with its pods, and otherwise removes it.
void update_checkpoint_condition(const Job& job, api::Status& status, SystemTime now);

// The message of that condition and of its event.
inline constexpr char kCheckpointsNotKept[] =
    "checkpoints are in an emptyDir, which is lost with its pod: after each restart, as after the loss of a node, "
    "training begins from step 0; set spec.checkpoints.claimName or spec.checkpoints.size to keep them";

// ---- End of an attempt ---------------------------------------------------------------------------------------------

// Ends an attempt whose pods are stopped, not crashed, and begins the next one: the status is Restarting, with a record
// and a restart that is not charged. The caller decides the size of an elastic group.
void stop_attempt(const Observed& observed, const Membership& members, std::string_view reason,
                  const std::string& message, api::Status& status);

// Counts one group restart, which costs nothing (charge_restart()).
void count_restart(api::Status& status, std::string_view reason);

// Appends a record of the attempt that ends now, with the progress in the status if rank 0 of this attempt has reported
// it, and removes the oldest record beyond api::kMaxAttemptRecords.
void record_attempt(const Observed& observed, const Membership& members, api::Status& status,
                    api::AttemptRecord record);

}  // namespace oarlock::control
