#include "operator/core/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "operator/core/bad_nodes.h"
#include "operator/core/elastic.h"
#include "operator/core/failure.h"
#include "operator/core/pod_failure.h"
#include "operator/core/pods.h"

namespace oarlock::control {
namespace {

constexpr std::chrono::seconds kMinDelay{10};
constexpr std::chrono::seconds kMaxDelay{600};

bool is_placed(const Membership& members, size_t node_rank) {
  const Pod* pod = members.current[node_rank];
  return is_recorded_finished(members, node_rank) || (pod != nullptr && has_node(*pod));
}

// Returns when the first pod of the attempt was created that has no node, or, while pods are missing, the first of all;
// absent if there is none.
std::optional<SystemTime> first_creation(const Membership& members, SystemTime now) {
  const bool counts_placed = has_missing_pods(members);
  std::optional<SystemTime> first;
  for (const Pod* pod : members.current) {
    if (pod != nullptr && (counts_placed || !has_node(*pod)))
      first = std::min(first.value_or(now), pod->created.value_or(now));
  }
  return first;
}

}  // namespace

std::optional<std::chrono::seconds> pending_timeout(const Observed& observed) {
  const std::optional<int>& own = observed.job.spec.scheduling.pending_timeout_seconds;
  const std::optional<int>& limit = own ? own : observed.pending_timeout_seconds;
  return limit ? std::optional(clamp_period(*limit)) : std::nullopt;
}

std::optional<SystemTime> placement_deadline(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const std::optional<std::chrono::seconds> limit = pending_timeout(observed);
  const bool waits = job.status.phase == api::Phase::kPending || job.status.phase == api::Phase::kRestarting;
  if (!limit || !waits || !conflicting_names(members).empty() || may_shrink(observed, members)) return std::nullopt;
  if (has_avoiding_pods(members)) return std::nullopt;
  // Pods that avoid nodes less are about to be created.
  if (has_missing_pods(members) && observed.last_error.empty()) return std::nullopt;
  bool are_placed = true;
  for (size_t rank = 0; rank < members.current.size(); ++rank) are_placed = are_placed && is_placed(members, rank);
  if (are_placed) return std::nullopt;
  const std::optional<SystemTime> first = first_creation(members, observed.now);
  return first ? std::optional(*first + *limit) : std::nullopt;
}

bool ended_unplaced(const api::AttemptRecord& record) { return record.reason == kNotPlaced; }

std::chrono::seconds placement_delay(const Job& job, const api::AttemptRecord& record) {
  const SystemTime begin = record.start_time.value_or(record.end_time);
  const auto waited = std::chrono::floor<std::chrono::seconds>(record.end_time - begin);
  const std::chrono::seconds delay = std::clamp(waited / 2, kMinDelay, kMaxDelay);
  const size_t hash = std::hash<std::string>{}(fmt::format("{}/{}", job.metadata.uid, record.attempt));
  return delay + std::chrono::seconds(hash % static_cast<size_t>(delay.count()));
}

int first_kept_attempt(const api::Status& status) {
  const auto failed = std::find_if_not(status.attempts.rbegin(), status.attempts.rend(), ended_unplaced);
  const bool has_retried = failed != status.attempts.rbegin() && failed != status.attempts.rend();
  return has_retried ? std::min(failed->attempt, status.attempt - 1) : status.attempt - 1;
}

void add_record(api::AttemptRecord record, std::vector<api::AttemptRecord>& records) {
  const bool continues = !records.empty() && records.back().attempt + 1 == record.attempt;
  if (continues && ended_unplaced(record) && ended_unplaced(records.back())) {
    record.start_time = records.back().start_time;
    records.pop_back();
  }
  records.push_back(std::move(record));
  if (records.size() > api::kMaxAttemptRecords) records.erase(records.begin());
}

}  // namespace oarlock::control
