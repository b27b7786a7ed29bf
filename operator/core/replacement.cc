#include "operator/core/replacement.h"

#include <algorithm>

#include "common/contract.h"
#include "operator/core/bad_nodes.h"
#include "operator/core/desired.h"
#include "operator/core/elastic.h"

namespace oarlock::control {
namespace {

using api::FailureAction;
using std::chrono::seconds;

constexpr int kKilledExitCode = 128 + 9;  // SIGKILL, also of the kernel when memory runs out

// Returns whether the other pods continue without this one. A launcher that ends by itself has ended the group, and
// leaves the message of a rank; one that was killed with its container leaves none.
bool is_replaceable(const Job& job, const Membership& members, const PodFailure& failure) {
  if (failure.action == FailureAction::kFail) return false;
  // A node that rejects the replacement may reject each further one, and only group restarts have a backoff.
  const bool is_replacement =
      failure.pod != nullptr && members.replacements[static_cast<size_t>(failure.node_rank)] != nullptr;
  if (is_replacement && is_rejected(*failure.pod)) return false;
  if (failure.cause == FailureCause::kRemoved || failure.cause == FailureCause::kLost) return true;
  if (failure.cause == FailureCause::kDisconnected) return launcher_bounds(job).has_value();
  if (failure.cause != FailureCause::kExit) return false;
  return failure.pod->trainer->exit_code == kKilledExitCode &&
         !termination_message_from_json(failure.pod->trainer->message);
}

bool is_survivor(const Membership& members, size_t node_rank) {
  const Pod* pod = members.current[node_rank];
  return pod != nullptr && pod->phase == PodPhase::kRunning && !pod->deleting && !has_ended(*pod) &&
         members.replacements[node_rank] == nullptr;
}

// Whether the pods that exist were created with this key.
bool have_key(const Membership& members, std::string_view key) {
  return std::ranges::all_of(members.current,
                             [&](const Pod* pod) { return pod == nullptr || pod->regroup_key == key; });
}

// Whether a pod that is created now can join the pods that exist. One with another key, or none, cannot.
bool can_new_pod_join(const Membership& members) {
  return members.service != nullptr && !members.service->regroup_key.empty() &&
         have_key(members, members.service->regroup_key);
}

// Whether the preflight of the attempt may not be over: the launcher of node rank 0 responds to polls only afterwards.
bool may_be_in_preflight(const Observed& observed) {
  const Job& job = observed.job;
  const BoxedOptional<api::Startup>& startup = job.status.startup;
  const bool has_reported = startup && startup->attempt == job.status.attempt && startup->first_report;
  const bool responds = observed.last_poll && observed.last_poll->reachable;
  return job.spec.preflight && job.group_nodes() > 1 && !has_reported && !responds;
}

// Returns when the last of the pods was lost that have not been replaced.
SystemTime last_loss(const Job& job, const Membership& members) {
  SystemTime last = SystemTime::min();
  for (size_t rank = 0; rank < members.replacements.size(); ++rank) {
    const api::Replacement* pending = pending_replacement(job, members, rank);
    if (pending != nullptr) last = std::max(last, pending->time);
  }
  return last;
}

}  // namespace

bool can_join(const Membership& members, size_t node_rank) {
  if (!is_replacement_due(members, node_rank)) return have_key(members, members.current[node_rank]->regroup_key);
  return can_new_pod_join(members);
}

bool can_replace(const Observed& observed, const Membership& members, const std::vector<PodFailure>& failures) {
  const Job& job = observed.job;
  if (!can_new_pod_join(members)) return false;
  if (!regroups(job) || !is_running(job.status.phase) || may_be_in_preflight(observed)) return false;
  if (!std::ranges::all_of(failures, [&](const PodFailure& one) { return is_replaceable(job, members, one); }))
    return false;
  if (!members.conflicting_pods.empty()) return false;  // the names of the new pods may be taken
  bool has_survivor = false;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    if (is_rank_done(job, members, rank)) return false;  // a finished rank does not join the next group
    has_survivor = has_survivor || is_survivor(members, rank);
  }
  const auto pending = std::ranges::count_if(members.replacements, [](const auto* one) { return one != nullptr; });
  if (pending + static_cast<int64_t>(failures.size()) > kMaxReplacements) return false;
  return has_survivor;
}

GroupEvidence find_group(const Observed& observed, const Membership& members, const std::vector<PodFailure>& failures) {
  using State = GroupEvidence::State;
  SystemTime left = SystemTime::min();
  for (const PodFailure& failure : failures) {
    if (failure.cause == FailureCause::kDisconnected) left = std::max(left, failure.when);
  }
  if (left == SystemTime::min()) return {};
  // A node's clock that is ahead would make every response look older than the exit.
  const bool is_time_wrong = left > observed.now + kDisconnectedGracePeriod;
  if (is_time_wrong || progress_pod(members) == nullptr || is_replacement_pending(members, 0)) return {State::kMissing};
  const SystemTime since = left + kCollateralGracePeriod;
  if (since > observed.now) return {State::kUnknown, *time_until(since, observed.now)};
  if (!was_polled_since(observed, members, since)) return {State::kUnknown, kStaleCacheRequeue};
  const bool responds = observed.last_poll && observed.last_poll->answered && observed.progress &&
                        observed.progress->attempt == observed.job.status.attempt;
  if (responds) return {State::kExists};
  // A single response may be late.
  const std::optional<seconds> rest = time_until(left + kDisconnectedGracePeriod, observed.now);
  return rest ? GroupEvidence{State::kUnknown, std::min(*rest, kStaleCacheRequeue)} : GroupEvidence{State::kMissing};
}

const api::Replacement* pending_replacement(const Job& job, const Membership& members, size_t node_rank) {
  // The record of one that has started is about to be removed.
  if (!is_running(job.status.phase) || !is_replacement_pending(members, node_rank)) return nullptr;
  return members.replacements[node_rank];
}

bool can_shrink(const Job& job, const Membership& members, const Pod* replacement) {
  const int placed = count_placed(members);
  const bool is_unplaced = replacement == nullptr || !replacement->scheduled || replacement->deleting;
  return job.spec.elastic && !has_done_rank(job, members) && is_unplaced && placed >= job.spec.elastic->min_nodes &&
         placed < job.group_nodes();
}

std::optional<SystemTime> replacement_deadline(const Observed& observed, const Membership& members, size_t node_rank) {
  const Job& job = observed.job;
  const api::Replacement* pending = pending_replacement(job, members, node_rank);
  if (pending == nullptr || continues_with_fewer_nodes(observed, members)) return std::nullopt;
  if (has_avoiding_pods(members)) return std::nullopt;
  const bool in_place = launcher_bounds(job).has_value();
  const SystemTime since = in_place ? last_loss(job, members) : pending->time;
  const SystemTime late = end_of_delay(since, seconds(job.spec.stall_policy.timeout_seconds), observed.now);
  const std::optional<SystemTime> shrink = shrink_time(job, members, since, observed.now);
  if (!shrink || !can_shrink(job, members, members.current[node_rank])) return late;
  return std::min(in_place ? *shrink + kShrinkInPlaceTime : *shrink, late);
}

bool awaits_report(const Observed& observed, const Membership& members, SystemTime deadline) {
  return launcher_bounds(observed.job) && !was_polled_since(observed, members, deadline);
}

std::optional<seconds> next_replacement_check(const Observed& observed, const Membership& members) {
  std::optional<seconds> first;
  for (size_t rank = 0; rank < members.replacements.size(); ++rank) {
    const std::optional<SystemTime> deadline = replacement_deadline(observed, members, rank);
    if (!deadline) continue;
    first = earliest(first, awaits_report(observed, members, *deadline) && *deadline <= observed.now
                                ? kStaleCacheRequeue
                                : time_until(deadline, observed.now));
  }
  return first;
}

}  // namespace oarlock::control
