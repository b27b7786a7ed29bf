// The budget of restarts: whether a failure follows progress, what it costs, and whether the job may restart after it.
// Pure functions of the policy and the status. docs/operator-states.md has the table of what is charged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/types.h"
#include "common/boxed_optional.h"

namespace oarlock::control {

// RestartCharge::reason of a job that cannot restart again.
inline constexpr std::string_view kMaxRestartsExceeded = "MaxRestartsExceeded";
// RestartCharge::reason of a job that has failed failurePolicy.maxFailuresAtStep times at one step.
inline constexpr std::string_view kNoProgress = "NoProgress";

// How far an attempt has come, as its rank 0 has reported. A pod can report any numbers: they affect its job only, and
// failurePolicy.maxTotalRestarts bounds their effect.
struct AttemptProgress {
  std::optional<int64_t> step;             // absent: rank 0 has not reported in this attempt
  std::optional<int64_t> checkpoint_step;  // of the newest checkpoint

  bool operator==(const AttemptProgress&) const = default;
};

// Returns whether the step or the checkpoint is newer than at the last failure that followed progress.
bool has_progressed(const api::Restarts& restarts, const AttemptProgress& reached);

// The failures that are decided together.
struct BudgetRequest {
  int failures = 1;              // of the group 1; of pods that are replaced, those that are not free
  bool is_group_restart = true;  // otherwise only the pods are replaced, while the others keep their state
};

// What these failures cost.
struct RestartCharge {
  int charged = 0;                                   // counts against failurePolicy.maxRestarts; 0 after progress
  BoxedOptional<api::AfterProgress> after_progress;  // Restarts::after_progress after the failures
  std::string reason;                                // of the condition, if the job must not restart; empty otherwise
  std::string message;                               // why it must not, to be appended to the root cause

  bool has_progressed() const { return charged == 0; }
};

// Decides about failures that are not free. Without progress, an attempt that ends is charged with the restarts in its
// pods as well, if rank 0 has reported a step: the launchers restart processes within the same budget.
RestartCharge charge_failures(const api::FailurePolicy& policy, const api::Status& status,
                              const AttemptProgress& reached, const BudgetRequest& request);

// Adds the cost of a group restart, or of replaced pods, to the status. The caller counts the restart or the pods.
void charge_restart(const RestartCharge& charge, api::Status& status);
void charge_replacement(const RestartCharge& charge, api::Status& status);

// Returns the restarts and replacements that count against failurePolicy.maxRestarts.
int used_restarts(const api::Status& status);

// Returns failurePolicy.maxTotalRestarts, by default ten times maxRestarts: a job without restarts gets none by
// progress.
int64_t total_restart_limit(const api::FailurePolicy& policy);

}  // namespace oarlock::control
