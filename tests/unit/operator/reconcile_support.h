// What the tests of reconcile() share. Together they have one test for each row of docs/operator-states.md, and for
// each place where the operator may die or see an old view.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/core/reconcile.h"
#include "operator/core/status.h"
#include "tests/support/builders.h"

namespace oarlock::test {

inline PodBuilder pod(int attempt, int node_rank) { return {"bert", attempt, node_rank}; }

// The world after the plan was done: its status, and nothing else changed.
inline control::Observed after(const control::Observed& observed, const control::Plan& plan) {
  control::Observed out = observed;
  out.job.status = status_after(observed, plan);
  return out;
}

// With the plan's status in place, the same world gives the same status.
inline void expect_settled(const control::Observed& observed, const control::Plan& plan) {
  const control::Observed then = after(observed, plan);
  EXPECT_EQ(status_after(then, control::reconcile(then)), then.job.status) << "the status flaps";
}

}  // namespace oarlock::test
