// Texts of `oarlock list` and `oarlock status`. Pure functions of the objects.
#pragma once

#include <string>
#include <vector>

#include "api/types.h"
#include "cli/cluster/objects.h"
#include "cli/cluster/output.h"

namespace oarlock::cli {

Color phase_color(api::Phase phase);

// The table of `oarlock list`. With `is_wide`, loss, speed, ETA, ranks, the queue and the reason of the phase, too.
Table job_table(const std::vector<api::TrainingJob>& jobs, bool is_wide, bool has_namespaces, SystemTime now);

// Returns the condition of the job's phase, or null if there is none. The pointer is into `status`.
const api::Condition* current_condition(const api::Status& status);

// Returns the number of ready pods of the current attempt, "3/4"; "" if the operator has not counted them yet.
std::string ready_text(const api::Status& status);

// "[#####-----] 42%  step 4200/10000  ETA 10m"; "" if rank 0 has not reported progress.
std::string progress_text(const api::Status& status, SystemTime now);

// Returns the place of the job's checkpoints: "claim bert-checkpoints, directory /checkpoints/bert; newest: step 4000".
std::string checkpoint_text(const api::TrainingJob& job);

// Returns the state of the job in its queue: "team-a, waiting for 5m", or "team-a, admitted 5m ago by ClusterQueue gpus
// for 2 nodes with flavors h100, cpu"; "" if it has no queue.
std::string queue_text(const api::Status& status, SystemTime now);
// The same, with Kueue's reason while the job waits, from the condition: "team-a, waiting for 5m: Pending: insufficient
// quota".
std::string queue_line(const api::Status& status, SystemTime now);

struct StatusInput {
  api::TrainingJob job;
  std::vector<PodView> pods;       // of the current attempt
  std::vector<EventView> events;   // about the job, in any order
  std::vector<std::string> notes;  // about objects that could not be read
  std::string finalizers{};        // holding_finalizers() of the job
};
std::string status_text(const StatusInput& input, bool is_wide, const Style& style, SystemTime now);

}  // namespace oarlock::cli
