// When a standby process starts, and how long the launcher waits for one that has become a rank. The processes are
// real, the time is the test's; tests/integration/cli/live_recovery_test.cc has the ranks.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>

#include "cli/launch/standby.h"
#include "tests/support/fake_clock.h"

namespace oarlock::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class StandbySlotTest : public testing::Test {
 protected:
  ~StandbySlotTest() override {
    for (const pid_t pid : started_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  // Starts a standby process that never reads the data of its rank.
  bool start() {
    slot_.schedule();
    clock_.advance(kMaxStandbyDelay);
    const std::optional<pid_t> pid = slot_.start_if_due();
    if (pid) started_.push_back(*pid);
    return pid.has_value();
  }

  test::FakeClock clock_;
  const Command command_{.argv = {"sleep", "1000"}, .environment = {{"RANK", "0"}}};
  const SignalSource signals_ = *SignalSource::take();
  StandbySlot slot_{{&command_}, clock_, signals_};
  std::vector<pid_t> started_;
};

TEST_F(StandbySlotTest, StartsAfterTheDelayOfTheLastRequest) {
  EXPECT_EQ(slot_.deadline(), std::nullopt);
  slot_.schedule();
  clock_.advance(kStandbyDelay - milliseconds(1));
  EXPECT_EQ(slot_.start_if_due(), std::nullopt);
  slot_.schedule();
  clock_.advance(kStandbyDelay - milliseconds(1));
  EXPECT_EQ(slot_.start_if_due(), std::nullopt);
  EXPECT_EQ(slot_.deadline(), clock_.steady() + milliseconds(1));
  clock_.advance(milliseconds(1));
  const std::optional<pid_t> pid = slot_.start_if_due();
  ASSERT_TRUE(pid);
  started_.push_back(*pid);
  slot_.schedule();
  EXPECT_EQ(slot_.deadline(), std::nullopt) << "there is one";
}

TEST_F(StandbySlotTest, WaitsAMomentForAProcessThatIsLoaded) {
  ASSERT_TRUE(start());
  clock_.advance(kLoadPatience);
  ASSERT_TRUE(slot_.become(command_, 0));
  clock_.advance(kHandOverPatience - milliseconds(1));
  EXPECT_THAT(slot_.end_hand_overs({}), IsEmpty());
  clock_.advance(milliseconds(1));
  EXPECT_THAT(slot_.end_hand_overs({}), ElementsAre(0));
  EXPECT_THAT(slot_.end_hand_overs({}), IsEmpty()) << "reported once";
}

// A process that is killed while it loads its libraries is replaced by one that has to load them too.
TEST_F(StandbySlotTest, WaitsLongerForAProcessThatMayStillLoad) {
  ASSERT_TRUE(start());
  clock_.advance(seconds(1));
  ASSERT_TRUE(slot_.become(command_, 0));
  clock_.advance(kLoadPatience - seconds(1) - milliseconds(1));
  EXPECT_THAT(slot_.end_hand_overs({}), IsEmpty());
  clock_.advance(milliseconds(1));
  EXPECT_THAT(slot_.end_hand_overs({}), ElementsAre(0));
}

TEST_F(StandbySlotTest, DelaysGrowWhileProcessesEnd) {
  for (const auto delay : {kStandbyDelay, 2 * kStandbyDelay, 4 * kStandbyDelay}) {
    ASSERT_TRUE(start());
    EXPECT_TRUE(slot_.remove(started_.back()));
    EXPECT_FALSE(slot_.remove(started_.back()));
    EXPECT_EQ(slot_.deadline(), clock_.steady() + delay);
  }
}

}  // namespace
}  // namespace oarlock::launch
