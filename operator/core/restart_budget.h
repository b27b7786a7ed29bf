// The budget of restarts: whether a failure follows progress, what it costs, and whether the job may restart after it.
// Pure functions of the policy and the status. docs/operator-states.md has the table of what is charged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/types.h"

namespace oarlock::control {

// RestartCharge::reason of a job that cannot restart again.
inline constexpr std::string_view kMaxRestartsExceeded = "MaxRestartsExceeded";
// RestartCharge::reason of a job that has failed failurePolicy.maxFailuresAtStep times at one step.
inline constexpr std::string_view kNoProgress = "NoProgress";

// The failures that are decided together.
struct BudgetRequest {
  int failures = 1;              // of the group 1; of pods that are replaced, those that are not free
  bool is_group_restart = true;  // otherwise only the pods are replaced, while the others keep their state
};

// What these failures cost.
struct RestartCharge {
  int charged = 0;                      // counts against failurePolicy.maxRestarts; 0 after progress
  api::AfterProgress after_progress{};  // Restarts::after_progress after the failures
  std::string reason{};                 // of the condition, if the job must not restart; empty otherwise
  std::string message{};                // why it must not, to be appended to the root cause
};

// Decides about failures that are not free. They follow progress if the job has reached a step or a checkpoint beyond
// those of all failures before, also in an attempt that ended free. A pod can report any numbers: they affect its job
// only, and failurePolicy.maxTotalRestarts bounds their effect.
RestartCharge charge_failures(const api::FailurePolicy& policy, const api::Status& status,
                              const api::HighestProgress& reached, const BudgetRequest& request);

// Returns status.restarts.afterProgress. If the status of a job that has restarted does not have it, the step is that
// of the recorded attempts. Each restart, also one that is free, and each replaced pod writes it to the status.
api::AfterProgress last_progress(const api::Status& status);

// Adds the cost of a group restart, or of replaced pods, to the status. The caller counts the restart or the pods.
void charge_restart(const RestartCharge& charge, api::Status& status);
void charge_replacement(const RestartCharge& charge, api::Status& status);

// Returns the restarts and replacements that count against failurePolicy.maxRestarts.
int used_restarts(const api::Status& status);

// Returns failurePolicy.maxTotalRestarts, by default ten times maxRestarts: a job without restarts gets none by
// progress.
int64_t total_restart_limit(const api::FailurePolicy& policy);

}  // namespace oarlock::control
