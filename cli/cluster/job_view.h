// Texts of `oarlock list` and `oarlock status`. Pure functions of the objects.
#pragma once

#include <optional>
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

// Returns the stages of the start of the current attempt: "nodes after 4s, containers 35s, first report 52s, first step
// 1m10s"; "" before the first of them.
std::string startup_text(const api::Status& status);

// Returns what the accelerators of the job have done: "12.3 accelerator-hours: productive 91.0%, starting 9.0%; ETTR
// 88.0% with 0.4 hours queued"; "" if it has used none. The share of productive time is the goodput.
std::string usage_text(const api::Status& status);

// Returns whether the job has a queue that has not admitted it.
bool is_waiting_in_queue(const api::Status& status);

// Returns the state of the job in its queue: "team-a, waiting for 5m at position 3 of the ClusterQueue", or "team-a,
// admitted 5m ago by ClusterQueue gpus for 2 nodes with flavors h100, cpu"; "" if it has no queue. `position` is that
// of read_queue_position().
std::string queue_text(const api::Status& status, SystemTime now, std::optional<int> position = std::nullopt);
// The same, with Kueue's reason while the job waits, from the condition: "team-a, waiting for 5m: Pending: insufficient
// quota".
std::string queue_line(const api::Status& status, SystemTime now);

// Returns the state of the PodGroup of an attempt: "PodGroup bert-0 of scheduling.k8s.io: 0 of 4 pods have nodes"; ""
// if its pods belong to none.
std::string gang_text(const std::vector<PodView>& pods, int attempt);

// Returns a description of each node on which the job has failed: "gpu-7: pods require other nodes for 23h30m more; 2
// failures, the last one 30m ago: DeviceFailed".
std::vector<std::string> bad_node_texts(const api::TrainingJob& job, SystemTime now);

// Returns which node is about to be drained or removed, and since when a checkpoint is requested; "" without such a
// node.
std::string disruption_text(const api::Status& status, SystemTime now);

struct StatusInput {
  api::TrainingJob job;
  std::vector<PodView> pods;            // of the current attempt
  std::vector<EventView> events;        // about the job, in any order
  std::vector<std::string> notes;       // about objects that could not be read
  std::string finalizers{};             // holding_finalizers() of the job
  std::optional<int> queue_position{};  // read_queue_position()
  std::string topology{};               // read_topology()
};
std::string status_text(const StatusInput& input, bool is_wide, const Style& style, SystemTime now);

}  // namespace oarlock::cli
