#include "operator/core/startup.h"

#include <algorithm>
#include <chrono>

#include "operator/core/progress.h"

namespace oarlock::control {
namespace {

bool has_run(const Pod& pod) { return pod.phase == PodPhase::kRunning || has_ended(pod); }

std::optional<SystemTime> find_last(const Observed& observed, const Membership& members, bool (*has)(const Pod&),
                                    std::optional<SystemTime> Pod::* time) {
  std::optional<SystemTime> last;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    if (is_recorded_finished(members, rank)) continue;
    if (pod == nullptr || !has(*pod)) return std::nullopt;
    last = std::max(last, pod->*time);
  }
  return std::min(last.value_or(observed.now), observed.now);
}

// Sets the seconds since the creation of the pods, at least those of the stage before.
void complete(std::optional<int64_t>& stage, int64_t previous, SystemTime created, SystemTime time) {
  if (!stage) stage = std::max<int64_t>(previous, std::chrono::floor<std::chrono::seconds>(time - created).count());
}

}  // namespace

std::optional<SystemTime> find_placement_time(const Observed& observed, const Membership& members) {
  return find_last(observed, members, has_node, &Pod::scheduled_at);
}

std::optional<SystemTime> find_start_time(const Observed& observed, const Membership& members) {
  return find_last(observed, members, has_run, &Pod::started_at);
}

BoxedOptional<api::Startup> account_startup(const Observed& observed, const Membership& members,
                                            const api::Status& next) {
  const api::Status& before = observed.job.status;
  api::Startup out = before.startup.value_or(api::Startup{});
  if (out.attempt != next.attempt) out = {.attempt = next.attempt};
  if (!before.startup && api::is_running(before.phase) && next.attempt == before.attempt) return std::nullopt;
  // The observed pods and reports are those of the attempt before.
  if (!next.attempt_start_time || next.attempt != before.attempt) return out;
  const SystemTime created = *next.attempt_start_time;
  const std::optional<SystemTime> placed = find_placement_time(observed, members);
  if (placed) complete(out.scheduled, 0, created, *placed);
  const std::optional<SystemTime> started = find_start_time(observed, members);
  if (out.scheduled && started) complete(out.started, *out.scheduled, created, *started);
  if (!out.started || !has_progress(observed, next)) return out;
  const int64_t step = observed.progress->step;
  if (!out.first_report) out.step = step;
  const SystemTime received = std::min(observed.step_received_at.value_or(observed.now), observed.now);
  complete(out.first_report, *out.started, created, received);
  if (step > out.step.value_or(0)) complete(out.first_step, *out.first_report, created, received);
  return out;
}

}  // namespace oarlock::control
