#include "operator/core/elastic.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/rules.h"
#include "api/validate.h"
#include "common/text.h"
#include "operator/core/bad_nodes.h"
#include "operator/core/desired.h"
#include "operator/core/failure.h"
#include "operator/core/pod_failure.h"
#include "operator/core/pod_template.h"
#include "operator/core/pods.h"
#include "operator/core/status.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::Phase;
using std::chrono::seconds;

// More doublings of any interval exceed kMaxGrowthInterval.
constexpr int kMaxDoublings = 17;

// The phase of a rank whose group forms (trainer/telemetry): its world size need not be that of the next group.
constexpr std::string_view kForming = "rendezvous";

bool is_waiting(Phase phase) { return phase == Phase::kPending || phase == Phase::kRestarting; }

// Returns the size of the current attempt; null if the job is not elastic or has no status yet.
const api::GroupSize* find_size(const Job& job) {
  const BoxedOptional<api::GroupSize>& size = job.status.elastic;
  return job.spec.elastic && size && size->attempt == job.status.attempt ? &*size : nullptr;
}

// Returns the number of nodes that the group may have: those that the job requests, or for which its queue has admitted
// it.
int possible_nodes(const Job& job) {
  const int wanted = wanted_nodes(job);
  return job.status.queue ? std::min(wanted, job.status.queue->nodes.value_or(wanted)) : wanted;
}

// Pods without a node, and pods that the API server did not accept.
int count_unplaced(const Observed& observed, const Membership& members) {
  int count = 0;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    if (pod == nullptr) {
      if (!observed.last_error.empty() && !is_recorded_finished(members, rank)) ++count;
    } else if (!pod->scheduled && !has_ended(*pod) && !pod->deleting && pod->phase == PodPhase::kPending) {
      ++count;
    }
  }
  return count;
}

// Whether the attempt is the first one after a growth.
bool is_trial(const api::Status& status) {
  return !status.attempts.empty() && ended_by_resize(status.attempts.back()) && status.attempts.back().reason == kGrown;
}

// Begins the attempt with the recorded number of nodes.
void begin_size(const Job& job, int attempt, api::GroupSize& size) {
  size.attempt = attempt;
  size.launchers = make_launcher_bounds(job, size.nodes);
  size.active_nodes.reset();
}

seconds growth_interval(const api::Elastic& elastic, int failed_growths) {
  const seconds first = clamp_period(elastic.grow_after_seconds);
  const int64_t factor = int64_t{1} << std::clamp(failed_growths, 0, kMaxDoublings);
  return std::min(first * factor, std::max<seconds>(first, kMaxGrowthInterval));
}

// Returns how long pods may wait for nodes until the group shrinks.
seconds waiting_limit(const Job& job) {
  const seconds limit = clamp_period(job.spec.elastic->shrink_after_seconds);
  return is_trial(job.status) ? std::min<seconds>(limit, kGrowthTrial) : limit;
}

bool is_placed(const Pod& pod) { return has_node(pod) && !pod.deleting && !has_ended(pod); }

// Returns when the pods that have a node got it, in order; SystemTime::min() for a time that is not known.
std::vector<SystemTime> placement_times(const Membership& members, SystemTime now) {
  std::vector<SystemTime> placed;
  for (const Pod* pod : members.current) {
    if (pod == nullptr || !is_placed(*pod)) continue;
    const SystemTime time = pod->scheduled_at.value_or(SystemTime::min());
    // The time is that of the API server's clock. A clock that is ahead must not delay the decision.
    placed.push_back(time > now + kPlacementTime ? SystemTime::min() : time);
  }
  std::ranges::sort(placed);
  return placed;
}

// Returns the time of a decision to shrink, `due` or later, so that the pods without a node have kPlacementTime after
// each placement. Later placements than `latest` do not count, because ranks wait.
SystemTime settled_time(const std::vector<SystemTime>& placed, SystemTime due, SystemTime latest, seconds limit) {
  if (placed.empty()) return due;
  return std::max(due, std::min(placed.back(), latest) + std::min<seconds>(limit, kPlacementTime));
}

// Returns when the group shrinks to the pods that have a node; absent if it need not, or cannot.
std::optional<SystemTime> shrink_due(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const api::GroupSize* size = find_size(job);
  if (size == nullptr || !size->waiting_since || !is_waiting(job.status.phase)) return std::nullopt;
  if (count_unplaced(observed, members) == 0 || has_avoiding_pods(members)) return std::nullopt;
  const std::vector<SystemTime> placed = placement_times(members, observed.now);
  const auto enough = static_cast<size_t>(std::max(job.spec.elastic->min_nodes, 1));
  if (placed.size() < enough || placed.size() >= members.current.size()) return std::nullopt;
  const seconds limit = waiting_limit(job);
  // A restart after a failure does not begin the wait again, but its pods need time to get their nodes.
  SystemTime created = job.status.attempt_start_time.value_or(*size->waiting_since);
  if (const auto start = restart_time(job, job.status, observed.now)) created = std::max(created, *start);
  const SystemTime due = std::max(*size->waiting_since + limit, created + std::min<seconds>(limit, kPlacementTime));
  // The rank of the first pod that has a node waits for the longest time.
  return settled_time(placed, due, std::max({due, placed.front() + limit, placed[enough - 1]}), limit);
}

// Returns when the group grows to this number of nodes; absent if it does not.
std::optional<SystemTime> growth_due(const Job& job, int nodes) {
  const api::GroupSize* size = find_size(job);
  if (size == nullptr || job.status.phase != Phase::kRunning || !job.status.replacements.empty()) return std::nullopt;
  if (job.group_nodes() >= nodes) return std::nullopt;
  // spec.nodes was increased: find_scale() does not see it before the queue has admitted the nodes.
  if (job.status.queue && size->last_reason != kShrunk) return SystemTime{};
  if (!size->last_time || job.spec.elastic->grow_after_seconds <= 0) return std::nullopt;
  return *size->last_time + growth_interval(*job.spec.elastic, size->failed_growths);
}

std::string waiting_message(const Observed& observed, const Membership& members) {
  for (const Pod* pod : members.current) {
    if (pod != nullptr && !pod->scheduled && !pod->unscheduled_message.empty())
      return fmt::format("pod {}: {}", pod->name, sanitize_line(pod->unscheduled_message));
  }
  return observed.last_error.empty() ? "they have no node"
                                     : "the API server refused: " + sanitize_line(observed.last_error);
}

std::optional<Resize> find_scale(const Job& job) {
  if (!requests_scale(job) || !api::validate(job).empty()) return std::nullopt;
  return Resize{possible_nodes(job), kScaled, fmt::format("spec.nodes is {} now", job.spec.nodes)};
}

std::optional<Resize> find_shrink(const Observed& observed, const Membership& members) {
  const std::optional<SystemTime> due = shrink_due(observed, members);
  if (!due || *due > observed.now) return std::nullopt;
  if (!validate_group(observed.job, count_placed(members)).empty()) return std::nullopt;
  return Resize{
      count_placed(members), kShrunk,
      fmt::format("{} of {} pods had no node for at least {} s; {}", count_unplaced(observed, members),
                  observed.job.group_nodes(), waiting_limit(observed.job).count(), waiting_message(observed, members))};
}

std::optional<Resize> find_growth(const Observed& observed) {
  const Job& job = observed.job;
  const int nodes = possible_nodes(job);
  if (!may_grow_to(observed, nodes)) return std::nullopt;
  const int64_t waited = growth_interval(*job.spec.elastic, find_size(job)->failed_growths).count();
  return Resize{nodes, kGrown,
                job.status.queue ? fmt::format("the queue has admitted {}", counted(nodes, "node"))
                                 : fmt::format("the group had fewer than spec.nodes for at least {} s", waited)};
}

}  // namespace

int wanted_nodes(const Job& job) {
  if (!job.spec.elastic) return job.spec.nodes;
  const api::Elastic& elastic = *job.spec.elastic;
  const int most = std::max(elastic.max_nodes.value_or(api::rules::kMaxNodes), elastic.min_nodes);
  return std::clamp(job.spec.nodes, elastic.min_nodes, most);
}

bool may_shrink(const Observed& observed, const Membership& members) {
  return !has_done_rank(observed.job, members) && shrink_due(observed, members) &&
         validate_group(observed.job, count_placed(members)).empty();
}

std::vector<api::FieldProblem> validate_group(const Job& job, int nodes) {
  if (!job.spec.elastic || nodes == job.spec.nodes) return api::validate(job);
  Job sized = job;
  sized.spec.nodes = nodes;
  sized.spec.elastic.reset();  // the bounds of spec.nodes are not those of the group
  return api::validate(sized);
}

bool has_done_rank(const Job& job, const Membership& members) {
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    if (is_rank_done(job, members, rank)) return true;
  }
  return false;
}

std::optional<Resize> find_resize(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  if (find_size(job) == nullptr || !(is_waiting(job.status.phase) || is_running(job.status.phase)) ||
      has_done_rank(job, members))
    return std::nullopt;
  if (std::optional<Resize> scale = find_scale(job)) return scale;
  if (std::optional<Resize> shrink = find_shrink(observed, members)) return shrink;
  return find_growth(observed);
}

std::optional<SystemTime> next_resize_time(const Observed& observed, const Membership& members) {
  if (find_size(observed.job) == nullptr || has_done_rank(observed.job, members)) return std::nullopt;
  const std::optional<SystemTime> shrink = shrink_due(observed, members);
  return shrink ? shrink : growth_due(observed.job, wanted_nodes(observed.job));
}

bool may_grow_to(const Observed& observed, int nodes) {
  const std::optional<SystemTime> due = growth_due(observed.job, nodes);
  // A group whose checkpoints are lost with its pods would begin from step 0.
  if (!due || *due > observed.now || !keeps_checkpoints(observed.job)) return false;
  // spec.nodes may have become invalid since the group began, and a scale to it was ignored.
  return validate_group(observed.job, nodes).empty();
}

int count_placed(const Membership& members) {
  return static_cast<int>(
      std::ranges::count_if(members.current, [](const Pod* pod) { return pod != nullptr && is_placed(*pod); }));
}

bool requests_scale(const Job& job) {
  const api::GroupSize* size = find_size(job);
  if (size == nullptr) return false;
  const int wanted = possible_nodes(job);
  const int nodes = job.group_nodes();
  // A group that is shrunk below a reduced spec.nodes keeps its size and grows later.
  return wanted != size->wanted && (wanted < nodes || (wanted > nodes && wanted > size->wanted));
}

void refresh_group_size(const Observed& observed, const Membership& members, api::Status& status) {
  const Job& job = observed.job;
  if (!job.spec.elastic) return;
  if (!status.elastic || status.elastic->attempt != status.attempt) {
    api::GroupSize fresh;
    fresh.nodes = static_cast<int>(members.current.size());
    begin_size(job, status.attempt, fresh);
    fresh.wanted = wanted_nodes(job);
    status.elastic = std::move(fresh);
  }
  api::GroupSize& size = *status.elastic;
  if (size.launchers) size.active_nodes = active_nodes(observed);
  if (!requests_scale(job)) size.wanted = wanted_nodes(job);
  if (!is_waiting(status.phase)) {
    size.waiting_since.reset();
  } else if (!size.waiting_since && count_unplaced(observed, members) > 0) {
    size.waiting_since = std::chrono::floor<seconds>(observed.now);
  }
}

void set_group_size(const Job& job, const Resize& resize, SystemTime now, api::Status& next) {
  api::GroupSize size = next.elastic.value_or(api::GroupSize{});
  if (resize.reason == kScaled) {
    size.failed_growths = 0;
  } else if (resize.reason == kShrunk && size.last_reason == kGrown && size.last_time) {
    // A trial whose pods never had nodes has failed, even if the interval between growths is short.
    const bool has_run = !is_trial(job.status) || !is_waiting(job.status.phase);
    const bool has_lasted = has_run && now - *size.last_time >= growth_interval(*job.spec.elastic, size.failed_growths);
    size.failed_growths = has_lasted ? 0 : std::clamp(size.failed_growths, 0, kMaxDoublings - 1) + 1;
  }
  size.nodes = resize.nodes;
  begin_size(job, next.attempt, size);
  size.wanted = wanted_nodes(job);
  size.last_reason = resize.reason;
  size.last_time = std::chrono::floor<seconds>(now);
  size.waiting_since.reset();
  next.elastic = std::move(size);
}

void carry_group_size(const Job& job, SystemTime now, api::Status& next) {
  if (!job.spec.elastic) {
    next.elastic.reset();
  } else if (const std::optional<Resize> scale = find_scale(job)) {
    set_group_size(job, *scale, now, next);
  } else if (next.elastic) {
    begin_size(job, next.attempt, *next.elastic);
  }
}

std::optional<int> active_nodes(const Observed& observed) {
  const Job& job = observed.job;
  const api::GroupSize* size = find_size(job);
  const std::optional<int> recorded = size == nullptr ? std::nullopt : size->active_nodes;
  const std::optional<RankStatus>& rank = observed.progress;
  if (!rank || rank->attempt != job.status.attempt || rank->phase == kForming) return recorded;
  const int per_node = std::max(job.spec.processes_per_node, 1);
  if (rank->world_size < 1 || rank->world_size % per_node != 0 || rank->world_size > job.world_size()) return recorded;
  return rank->world_size / per_node;
}

bool continues_with_fewer_nodes(const Observed& observed, const Membership& members) {
  const api::GroupSize* size = find_size(observed.job);
  const std::optional<int> active = active_nodes(observed);
  if (size == nullptr || !size->launchers || !active || has_left_group(members, 0)) return false;
  const bool is_unknown = observed.last_poll && !observed.last_poll->answered;
  if (is_unknown && observed.job.status.phase == Phase::kStalled) return false;
  int left = 0;
  for (size_t rank = 0; rank < members.current.size(); ++rank) left += has_left_group(members, rank) ? 0 : 1;
  return *active >= size->launchers->min_nodes && *active <= left && *active < size->nodes;
}

bool is_resize_reason(std::string_view reason) { return reason == kShrunk || reason == kGrown || reason == kScaled; }

bool ended_by_resize(const api::AttemptRecord& record) {
  // A termination message cannot have these reasons (failure.cc).
  return record.pod.empty() && !record.exit_code && is_resize_reason(record.reason);
}

std::optional<SystemTime> shrink_time(const Job& job, const Membership& members, SystemTime since, SystemTime now) {
  if (find_size(job) == nullptr) return std::nullopt;
  const seconds limit = clamp_period(job.spec.elastic->shrink_after_seconds);
  // The ranks that remain have waited since the loss, whenever their pods got their nodes.
  return settled_time(placement_times(members, now), since + limit, since + limit, limit);
}

std::optional<Plan> resize(const Observed& observed, const Membership& members) {
  const std::optional<Resize> found = find_resize(observed, members);
  if (!found || !has_next_attempt(observed.job)) return std::nullopt;
  const int before = observed.job.group_nodes();
  api::Status next = refresh_status(observed, members);
  const std::string message =
      fmt::format("{} instead of {}: {}", counted(found->nodes, "node"), before, found->message);
  stop_attempt(observed, members, found->reason, message, next);
  set_group_size(observed.job, *found, observed.now, next);
  const auto type = found->reason == kShrunk ? EmitEvent::Type::kWarning : EmitEvent::Type::kNormal;
  const std::string summary =
      fmt::format("restarting as attempt {} with {}; this does not count as a restart", next.attempt, message);
  return start_attempt(observed, next, {},
                       {make_event(type, std::string(found->reason).c_str(), "RestartGroup", summary)}, summary);
}

}  // namespace oarlock::control
