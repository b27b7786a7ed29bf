// Elastic jobs in the states that their tests begin with.
#pragma once

#include "operator/core/desired.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {

using namespace control;  // NOLINT
using api::Phase;

inline constexpr char kNoNode[] = "0/1 nodes are available: 1 node(s) were unschedulable";

// The status of `attempt` with a group of `nodes` nodes, as the operator writes it.
inline Job sized(JobBuilder builder, Phase phase, int nodes, int attempt = 1) {
  Job job = builder.phase(phase, attempt);
  api::GroupSize size;
  size.attempt = attempt;
  size.nodes = nodes;
  size.wanted = job.spec.nodes;
  job.status.elastic = size;
  job.status.world_size = job.world_size();
  job.status.nodes.desired = nodes;
  return job;
}

inline JobBuilder elastic_job(int nodes = 2, int min_nodes = 1) { return JobBuilder().nodes(nodes).elastic(min_nodes); }

inline Job waiting_job(int seconds_ago, int nodes = 2, int min_nodes = 1) {
  Job job = sized(elastic_job(nodes, min_nodes), Phase::kRestarting, nodes);
  job.status.elastic->waiting_since = at_second(60 - seconds_ago);
  job.status.attempt_start_time = at_second(60 - seconds_ago);
  return job;
}

inline api::GroupSize size_after(const Observed& observed) {
  return status_after(observed, reconcile(observed)).elastic.value_or(api::GroupSize{});
}

inline Job shrunk_job(int seconds_ago, int failed_growths = 0) {
  Job job = sized(elastic_job(), Phase::kRunning, 1);
  job.spec.elastic->grow_after_seconds = 40;
  job.status.elastic->last_reason = kShrunk;
  job.status.elastic->last_time = at_second(60 - seconds_ago);
  job.status.elastic->failed_growths = failed_growths;
  return job;
}

}  // namespace oarlock::test
