// The size of an elastic job's group: when the group shrinks because the cluster lacks capacity, when it grows back,
// and when a user scales it. The decisions follow from the status and the pods alone, so that every operator process
// reaches the same ones. Each change of the size is a group restart that does not count against
// failurePolicy.maxRestarts.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/validate.h"
#include "operator/core/membership.h"

namespace oarlock::control {

// Reasons of a restart with another size, in the status, the events and the metrics.
inline constexpr std::string_view kShrunk = "Shrunk";
inline constexpr std::string_view kGrown = "Grown";
inline constexpr std::string_view kScaled = "Scaled";

// Returns whether a reason is one of these.
bool is_resize_reason(std::string_view reason);

// Returns whether a group that waits for nodes will shrink to the pods that have one, unless the others are placed.
bool may_shrink(const Observed& observed, const Membership& members);

// A growth is a trial, because the operator cannot read the free capacity of the cluster. If pods have no node after
// this time, or after elastic.shrinkAfterSeconds if that is shorter, the group shrinks again.
inline constexpr std::chrono::seconds kGrowthTrial{60};

// The time that the pods of each attempt have at least to be scheduled, or elastic.shrinkAfterSeconds if that is
// shorter. It restarts whenever a pod is scheduled, because an autoscaler adds nodes one after another, but only until
// elastic.shrinkAfterSeconds after the first pod was scheduled. The pod that completes minNodes always restarts it.
inline constexpr std::chrono::seconds kPlacementTime{30};

// Limit of the interval between growths, which doubles after each growth that did not last.
inline constexpr std::chrono::hours kMaxGrowthInterval{24};

struct Resize {
  int nodes = 0;
  std::string_view reason;  // kShrunk, kGrown or kScaled
  std::string message;
};

// Returns spec.nodes; of an elastic job within its bounds, which a stored job may violate.
int wanted_nodes(const Job& job);

// Returns the size with which the group must restart now; nothing if it keeps its size. A job with a finished rank
// keeps its size.
std::optional<Resize> find_resize(const Observed& observed, const Membership& members);

// Returns when find_resize() can have another result without a change of the observed state; absent if it cannot.
std::optional<SystemTime> next_resize_time(const Observed& observed, const Membership& members);

// Returns the problems of a job whose group has this number of nodes, which may differ from an elastic job's
// spec.nodes.
std::vector<api::FieldProblem> validate_group(const Job& job, int nodes);

// Returns whether a rank of the current attempt has finished.
bool has_done_rank(const Job& job, const Membership& members);

// Returns the number of pods of the current attempt that have a node and have not ended.
int count_placed(const Membership& members);

// Returns whether spec.nodes requests another size than the current one, and has changed since it was last considered.
bool requests_scale(const Job& job);

// Returns whether the group, which has no finished rank, is to grow to this number of nodes now if its queue admits it
// for them.
bool may_grow_to(const Observed& observed, int nodes);

// Updates status.elastic of the current attempt: creates it, and updates the fields that do not start an attempt.
void refresh_group_size(const Observed& observed, const Membership& members, api::Status& status);

// Sets the size of the attempt that `next` begins, and records the change.
void set_group_size(const Job& job, const Resize& resize, SystemTime now, api::Status& next);

// Keeps the size for the attempt that `next` begins after a failure, unless spec.nodes requests another one.
void carry_group_size(const Job& job, SystemTime now, api::Status& next);

// Returns the number of nodes that train: from rank 0's newest report of the current attempt in which its group is
// complete, or as the status records it. Absent if neither is known.
std::optional<int> active_nodes(const Observed& observed);

// Returns whether the launchers have reported that the group continues in place without the nodes that have left it
// (has_left_group()). A report counts until rank 0 neither completes steps nor responds.
bool continues_with_fewer_nodes(const Observed& observed, const Membership& members);

// Returns whether the attempt ended because the size of the group changed, and not because of a failure.
bool ended_by_resize(const api::AttemptRecord& record);

// Returns when a replacement of a lost pod that has no node yet is given up in favor of a smaller group; absent if the
// job is not elastic. `since` is when the replacement was decided.
std::optional<SystemTime> shrink_time(const Job& job, const Membership& members, SystemTime since, SystemTime now);

// Policy: restarts the group with another size.
std::optional<Plan> resize(const Observed& observed, const Membership& members);

}  // namespace oarlock::control
