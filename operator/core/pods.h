// Actions that create and delete the objects of a job, and the plans of the two transitions that replace or end its
// pods: the start of an attempt and the end of the job.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/membership.h"

namespace oarlock::control {

// ---- Creation ------------------------------------------------------------------------------------------------------

// Returns whether missing pods of an attempt are created in this phase: before there is a status, in Pending and in
// Restarting. In the other phases a missing pod is a failure, after which it may be replaced (is_replacement_due()).
bool can_create_pods(api::Phase phase);

// Returns whether the Service, the NetworkPolicy or a pod of status.attempt must be created now or later.
bool has_missing_objects(const Job& job, const Membership& members);

// Lists the required names that objects of other owners have; empty if there are none.
std::string conflicting_names(const Membership& members);

struct Creations {
  std::vector<Action> actions;
  std::optional<std::chrono::seconds> requeue_after;  // present if the restart backoff or a handover delays the pods
};

// Creates the missing NetworkPolicy, Service, PersistentVolumeClaim and pods of status.attempt, replaces the job's
// NetworkPolicy if it differs from the desired one, and deletes lost pods that are to be replaced. Leaves a
// NetworkPolicy of another owner alone. A job whose queue has not admitted it gets no pods: the actions request quota.
//
// REQUIRES: the spec is valid, and no required name of a Service or pod belongs to another owner's object.
Creations create_missing_objects(const Observed& observed, const Membership& members);

// ---- Deletion ------------------------------------------------------------------------------------------------------

struct Deletions {
  std::vector<Action> actions;
  std::optional<std::chrono::seconds> requeue_after;  // present if a pod is given time to end by itself
  bool makes_room = false;  // pods that are kept for their logs are deleted because of a quota
};

// How long a quota may reject the pods of an attempt before the ended pods of the previous one are deleted. Pods that
// are being stopped, which the quota counts as well, usually end within this time.
inline constexpr std::chrono::seconds kQuotaGracePeriod{30};

// Returns whether the last create was rejected by a quota on count/pods, which counts ended pods, too (a quota on pods
// does not), while ended pods of earlier attempts exist that are kept for their logs.
bool keeps_counted_pods(const Observed& observed, const Membership& members);

// Deletes the pods of earlier attempts, except for terminated pods of the previous attempt, which are kept for their
// logs. These are deleted, too, kQuotaGracePeriod after the start of an attempt whose pods a quota rejects because of
// them, once no other pod of an earlier attempt is left that will end.
Deletions delete_old_pods(const Observed& observed, const Membership& members);

// Deletes all live pods of all attempts. `since` is when the decision to stop them was made.
Deletions delete_live_pods(const Observed& observed, const Membership& members, const char* reason, SystemTime since);

// Deletes the pods of a job that ended at `since`, as spec.cleanPodPolicy specifies; its Service once no pod runs any
// more; and its NetworkPolicy once no pod accepts connections any more. Policy None keeps all of them, except for pods
// that would use the quota of a queue after the end of the job.
Deletions delete_leftovers(const Observed& observed, const Membership& members, SystemTime since);

// ---- Transitions ---------------------------------------------------------------------------------------------------

// Starts an attempt: patches the status to `next`, deletes the pods of earlier attempts and creates those of the new
// one. The patch follows `guards` and precedes everything else. It carries the resourceVersion, so that a plan that was
// made from a stale job ends there.
Plan start_attempt(const Observed& observed, api::Status next, std::vector<Action> guards, std::vector<Action> events,
                   std::string reason);

// Ends the job: patches the status to `next`, which is terminal, emits `event`, and deletes the objects that
// spec.cleanPodPolicy does not keep.
Plan finish_job(const Observed& observed, const Membership& members, api::Status next, std::vector<Action> guards,
                EmitEvent event);

}  // namespace oarlock::control
