// The startup timeline of an attempt.
#include "operator/core/startup.h"

#include <gtest/gtest.h>

#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;

class StartupTest : public ::testing::Test {
 protected:
  StartupTest() : observed_(seen(JobBuilder().nodes(2).phase(Phase::kPending))) {
    observed_.job.status.attempt_start_time = at_second(100);
  }

  api::Startup write(int64_t second, int attempt = 0) {
    observed_.now = at_second(second);
    api::Status next = observed_.job.status;
    next.attempt = attempt;
    if (attempt != observed_.job.status.attempt) next.attempt_start_time.reset();
    next.startup = account_startup(observed_, classify_objects(observed_), next);
    observed_.job.status = next;
    return next.startup.value_or(api::Startup{});
  }

  void report(int64_t second, int64_t step) {
    observed_.progress = RankStatus{.attempt = 0, .phase = "train", .step = step, .loss = {}, .updated_at = ""};
    observed_.step_received_at = at_second(second);
  }

  Observed observed_;
};

// The times are not known if an earlier version did not write them, or an older CRD drops them.
TEST_F(StartupTest, AttemptThatRunsAlreadyHasNone) {
  observed_.job.status.phase = Phase::kRunning;
  observed_.pods = {PodBuilder("bert", 0, 0).scheduled_at(at_second(104)).started_at(at_second(110)),
                    PodBuilder("bert", 0, 1).scheduled_at(at_second(104)).started_at(at_second(110))};
  for (int64_t second = 1000; second < 1003; ++second) {
    report(second, second);
    write(second);
    EXPECT_FALSE(observed_.job.status.startup);
  }
  EXPECT_EQ(write(2000, 1).attempt, 1);
}

TEST_F(StartupTest, RecordsEachStageOnce) {
  observed_.pods = {PodBuilder("bert", 0, 0).scheduled_at(at_second(104)), PodBuilder("bert", 0, 1)};
  EXPECT_EQ(write(105), api::Startup{}) << "a pod has no node";
  observed_.pods[1] = PodBuilder("bert", 0, 1).scheduled_at(at_second(107)).started_at(at_second(115));
  EXPECT_EQ(write(116), (api::Startup{.scheduled = 7}));
  observed_.pods[0] = PodBuilder("bert", 0, 0).scheduled_at(at_second(104)).started_at(at_second(130));
  EXPECT_EQ(write(140), (api::Startup{.scheduled = 7, .started = 30}));
  report(150, 40);
  EXPECT_EQ(write(155), (api::Startup{.scheduled = 7, .started = 30, .first_report = 50, .step = 40}));
  report(170, 41);
  const api::Startup all{.scheduled = 7, .started = 30, .first_report = 50, .first_step = 70, .step = 40};
  EXPECT_EQ(write(171), all);
  report(180, 42);
  observed_.pods[0] = PodBuilder("bert", 0, 0).scheduled_at(at_second(175)).started_at(at_second(176));
  EXPECT_EQ(write(181), all) << "a pod that replaces another one";
}

TEST_F(StartupTest, BeginsAgainWithTheNextAttempt) {
  observed_.pods = {PodBuilder("bert", 0, 0).started_at(at_second(110)),
                    PodBuilder("bert", 0, 1).started_at(at_second(90))};
  EXPECT_EQ(write(120), (api::Startup{.scheduled = 20, .started = 20})) << "the times of nodes are not known";
  EXPECT_EQ(write(130, 1), (api::Startup{.attempt = 1}));
}

TEST_F(StartupTest, StagesDoNotDecreaseByOtherClocks) {
  observed_.pods = {PodBuilder("bert", 0, 0).scheduled_at(at_second(109)).started_at(at_second(105)),
                    PodBuilder("bert", 0, 1).scheduled_at(at_second(90)).started_at(at_second(500))};
  EXPECT_EQ(write(110), (api::Startup{.scheduled = 9, .started = 10}));
  report(95, 3);
  EXPECT_EQ(write(120), (api::Startup{.scheduled = 9, .started = 10, .first_report = 10, .step = 3}));
}

}  // namespace
}  // namespace oarlock::test
