// What the tests of reconcile() share. Together they have one test for each row of docs/operator-states.md, and for
// each place where the operator may die or see an old view.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "operator/core/reconcile.h"
#include "operator/core/status.h"
#include "tests/support/builders.h"

namespace oarlock::test {

inline PodBuilder pod(int attempt, int node_rank) { return {"bert", attempt, node_rank}; }

// The world after the plan was done: its status and the end of the Service and the NetworkPolicy, and nothing else
// changed.
inline control::Observed after(const control::Observed& observed, const control::Plan& plan) {
  control::Observed out = observed;
  out.job.status = status_after(observed, plan);
  if (!only<control::DeleteService>(plan).empty()) out.services.clear();
  if (!only<control::DeleteNetworkPolicy>(plan).empty()) out.network_policies.clear();
  return out;
}

// Throws where there is none, which fails the test.
inline const api::Condition& condition_of(const api::Status& status, api::Phase phase) {
  const api::Condition* condition = control::find_condition(status, phase);
  if (condition == nullptr) throw std::runtime_error("no condition " + api::to_string(phase));
  return *condition;
}

// With the plan's status in place, the same world gives the same status.
inline void expect_settled(const control::Observed& observed, const control::Plan& plan) {
  const control::Observed then = after(observed, plan);
  EXPECT_EQ(status_after(then, control::reconcile(then)), then.job.status) << "the status flaps";
}

}  // namespace oarlock::test
