// Jobs in a queue, and the Workloads of Kueue that belong to them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/queue.h"
#include "operator/core/workload.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {

using namespace control;  // NOLINT
using api::Phase;

inline std::string confirm(const Job& job) { return "ConfirmWorkloadUnchanged " + workload_name(job); }

inline Workload waiting(const Job& job) {
  Workload out{
      .name = workload_name(job), .uid = "w", .resource_version = "7", .owner_uid = job.metadata.uid, .queue = "team"};
  out.nodes = job.spec.nodes;
  out.reason = "WaitingForQuota";
  out.message = "insufficient unused quota for cpu in flavor spot, 1 more needed";
  return out;
}

inline Workload admitted(const Job& job, int nodes) {
  Workload out = waiting(job);
  out.has_quota = out.admitted = true;
  out.admission = {.cluster_queue = "cluster", .nodes = nodes, .flavors = {"spot"}};
  return out;
}

inline Workload evicted(const Job& job) {
  Workload out = admitted(job, job.spec.nodes);
  out.evicted = true;
  out.reason = "Preempted";
  out.message = "Preempted to accommodate a workload of higher priority";
  return out;
}

// A job whose status has the queue, in this phase.
inline Job queued(Phase phase, JobBuilder job = JobBuilder()) {
  Job out = job.queue("team").phase(phase);
  out.status.queue.emplace().name = "team";
  return out;
}

inline Observed with_workload(const Job& job, std::vector<Pod> pods, std::optional<Workload> workload) {
  Observed out = seen(job, std::move(pods));
  out.workloads.emplace();
  if (workload) out.workloads->push_back(*workload);
  return out;
}

// The state when the pods of the plan's deletions have gone.
inline Observed without_pods(const Observed& observed, const Plan& plan) {
  Observed out = after(observed, plan);
  out.pods.clear();
  return out;
}

}  // namespace oarlock::test
