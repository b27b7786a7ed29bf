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
  StandbySlot slot_{{&command_, &command_}, clock_, signals_};
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

// It would not load its libraries either.
TEST_F(StandbySlotTest, WaitsAMomentForAProcessThatIsStopped) {
  ASSERT_TRUE(start());
  clock_.advance(seconds(1));
  ASSERT_TRUE(slot_.become(command_, 0));
  ::kill(started_.back(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(started_.back(), &status, WUNTRACED), started_.back());
  clock_.advance(kHandOverPatience - milliseconds(1));
  EXPECT_THAT(slot_.end_hand_overs({}), IsEmpty());
  EXPECT_EQ(slot_.deadline(), clock_.steady() + milliseconds(1));
  clock_.advance(milliseconds(1));
  EXPECT_THAT(slot_.end_hand_overs({}), ElementsAre(0));
}

// A process that could not become a member is not used for the next one.
TEST_F(StandbySlotTest, AProcessThatCannotBecomeAMemberIsKilled) {
  ASSERT_TRUE(start());
  Command other = command_;
  other.argv = {"true"};
  EXPECT_FALSE(slot_.become(other, 0));
  EXPECT_FALSE(slot_.become(command_, 1));
  int status = 0;
  EXPECT_EQ(::waitpid(started_.back(), &status, 0), started_.back());
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(slot_.remove(started_.back()));
  EXPECT_FALSE(slot_.remove(started_.back()));
  started_.pop_back();
  EXPECT_EQ(slot_.deadline(), clock_.steady() + kStandbyDelay);
  ASSERT_TRUE(start());
  EXPECT_TRUE(slot_.become(command_, 1));
}

// What delayed one standby process may delay the next one, such as a file server.
TEST_F(StandbySlotTest, AMemberWhoseProcessDidNotConfirmStartsWithANewOne) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(slot_.become(command_, 0));
  ASSERT_TRUE(start());
  clock_.advance(kLoadPatience);
  ASSERT_THAT(slot_.end_hand_overs({}), ElementsAre(0));
  EXPECT_FALSE(slot_.become(command_, 0));
  EXPECT_TRUE(slot_.become(command_, 0)) << "for the next loss of the member";
  clock_.advance(kLoadPatience);
  ASSERT_THAT(slot_.end_hand_overs({}), ElementsAre(0));
  EXPECT_EQ(slot_.deadline(), clock_.steady() + kStandbyDelay);
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
