// Two pods of a job, and what the failure policy decides of them.
#pragma once

#include <vector>

#include "operator/core/failure.h"
#include "tests/support/builders.h"

namespace oarlock::test {

inline constexpr char kTerminationMessage[] =
    R"({"rank":1,"step":7,"checkpointStep":5,"reason":"DataMissing","message":"/data is empty"})";

inline PodBuilder pod_of_rank(int node_rank) { return {"bert", 0, node_rank}; }

inline control::GroupFailure judged(const std::vector<control::Pod>& pods, api::Phase phase = api::Phase::kRunning,
                                    int restarts = 0) {
  const control::Observed observed = seen(JobBuilder().max_restarts(2).phase(phase).restarts(restarts), pods);
  return evaluate_failure_policy(observed, classify_objects(observed));
}

}  // namespace oarlock::test
