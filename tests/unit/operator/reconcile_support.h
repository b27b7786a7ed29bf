// Helpers of the tests of reconcile(). Together, these tests cover each row of docs/operator-states.md and each point
// at which the operator can crash or read a stale cache.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "operator/core/reconcile.h"
#include "operator/core/status.h"
#include "tests/support/builders.h"

namespace oarlock::test {

inline PodBuilder pod(int attempt, int node_rank) { return {"bert", attempt, node_rank}; }

// Returns the observed state after the plan was executed. Only the status and the deletion of the Service and the
// NetworkPolicy are applied.
inline control::Observed after(const control::Observed& observed, const control::Plan& plan) {
  control::Observed out = observed;
  out.job.status = status_after(observed, plan);
  if (!only<control::DeleteService>(plan).empty()) out.services.clear();
  if (!only<control::DeleteNetworkPolicy>(plan).empty()) out.network_policies.clear();
  return out;
}

// Throws if the plan has none, which fails the test.
inline const api::Condition& condition_of(const api::Status& status, api::Phase phase) {
  const api::Condition* condition = control::find_condition(status, phase);
  if (condition == nullptr) throw std::runtime_error("no condition " + api::to_string(phase));
  return *condition;
}

// Verifies that a second reconciliation with the plan's status returns the same status.
inline void expect_settled(const control::Observed& observed, const control::Plan& plan) {
  const control::Observed then = after(observed, plan);
  EXPECT_EQ(status_after(then, control::reconcile(then)), then.job.status) << "the status is not stable";
}

}  // namespace oarlock::test
