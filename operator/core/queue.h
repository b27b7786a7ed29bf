// Jobs that Kueue queues (status.queue). The operator requests their quota with a Workload, creates pods only while
// that is admitted, and releases the quota once pods that had to stop have ended. docs/guides/queues.md is the user's
// page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/core/membership.h"
#include "operator/core/pods.h"
#include "operator/core/status.h"

namespace oarlock::control {

// The reason of a job whose queue has not admitted it, and of one whose queue cannot be read.
inline constexpr char kQueued[] = "Queued";
inline constexpr char kQueueUnavailable[] = "QueueUnavailable";

// Returns whether the attempt ended because the queue did not admit the job any more.
bool ended_by_queue(const api::AttemptRecord& record);

// Returns Kueue's reason of such an end, such as Preempted, out of a fixed set: "Other" for one that this operator does
// not know, for a Workload that was deleted, and for other flavors.
const char* eviction_reason(const api::AttemptRecord& record);

// Returns whether the job has a queue, or may get the one of its label.
bool may_have_queue(const Job& job);

// Returns whether the Workloads of such a job are being read for the first time.
bool is_reading_workloads(const Observed& observed);

// Returns the queue of a job that starts or is resumed: that of its label.
BoxedOptional<api::QueueStatus> decide_queue(const Job& job);

// Returns the state with the queue in the job's status; absent if it is not to be decided now.
std::optional<Observed> decide_about_queue(const Observed& observed);

// Returns what the job's queue assigns to its pods; null if the queue has not admitted all pods of the group, or cannot
// be read.
const Admission* find_admission(const Membership& members);

// Returns the guard of actions that rest on the observed admission, or its absence. REQUIRES: members.workload
ConfirmWorkloadUnchanged confirm_admission(const Membership& members);

// Returns whether the job has a queue that does not let its pods run.
bool is_waiting_for_queue(const Observed& observed, const Membership& members);

// Why such a job has no pods.
WaitingReason queue_reason(const Observed& observed, const Membership& members);

// Updates status.queue.
void refresh_queue(const Observed& observed, const Membership& members, api::Status& status);

// Returns the actions with which a job that may run requests quota: creates its Workload, also if it was deleted while
// the job runs, or deletes one that does not fit the job any more, before it is created again.
Creations request_quota(const Observed& observed, const Membership& members);

// Returns the actions that request the quota for a group that is to grow, with a Workload that takes over the quota of
// the current one when Kueue admits it (unless `may_create` is false), and that delete such Workloads when they are not
// needed any more.
std::vector<Action> request_growth(const Observed& observed, const Membership& members, bool may_create);

// Returns the action that reports to Kueue whether all pods have started, if the Workload does not have that yet.
// `next` is the status after the plan.
std::vector<Action> report_readiness(const Observed& observed, const Membership& members, const api::Status& next);

// Returns the actions that release the quota of a finished job, or of a suspended one, once its pods have ended.
std::vector<Action> finish_workload(const Observed& observed, const Membership& members);
std::vector<Action> delete_workload(const Observed& observed, const Membership& members);

// Stops the pods of a job that its queue does not admit any more, or admits otherwise: the next attempt waits for a new
// admission. It does not count as a restart. Once the pods have ended, the quota of an evicted job is released. A job
// whose Workload is missing keeps running until another one exists, because Kueue may have been uninstalled.
std::optional<Plan> obey_queue(const Observed& observed, const Membership& members);

// Requests quota for a job that MultiKueue manages (spec.managedBy), whose pods run in another cluster: Kueue creates a
// copy of the job there once the Workload is admitted here, and copies its status. Updates the status while there is no
// copy.
std::optional<Plan> queue_for_multikueue(const Observed& observed, const Membership& members);

// Reduces the group of an elastic job, before its pods exist, to the number of nodes that the queue has admitted.
std::optional<Plan> fit_to_admission(const Observed& observed, const Membership& members);

}  // namespace oarlock::control
