#include "operator/shell/own_writes.h"

#include <gmock/gmock.h>

#include "operator/kube/request.h"
#include "tests/support/fake_clock.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;

class OwnWritesTest : public ::testing::Test {
 protected:
  // Is the job free to be looked at when the cache is at these versions?
  bool seen(const std::string& uid, const std::string& jobs, const std::string& pods) {
    return writes_.seen(uid, [&](Kind kind, const std::string& wanted) {
      return kube::compare_resource_versions(kind == Kind::kJob ? jobs : pods, wanted) >= 0;
    });
  }
  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  OwnWrites writes_{clock_};
};

TEST_F(OwnWritesTest, AJobWithoutWritesIsFree) { EXPECT_TRUE(seen("u", "", "")); }

TEST_F(OwnWritesTest, WaitsUntilTheCacheHasTheNewestOfEachKind) {
  writes_.record("u", Kind::kPod, "101");
  writes_.record("u", Kind::kPod, "99");  // answers may come out of order
  writes_.record("u", Kind::kJob, "50");
  EXPECT_FALSE(seen("u", "49", "99"));
  EXPECT_FALSE(seen("u", "49", "100"));
  EXPECT_FALSE(seen("u", "50", "100"));
  EXPECT_TRUE(seen("u", "50", "101"));
  EXPECT_TRUE(seen("u", "0", "0"));  // and does not ask again
}

TEST_F(OwnWritesTest, JobsAreKnownByTheirUid) {
  writes_.record("old", Kind::kPod, "101");
  EXPECT_TRUE(seen("new", "", ""));
  EXPECT_FALSE(seen("old", "", ""));
  writes_.forget("old");
  EXPECT_TRUE(seen("old", "", ""));
}

TEST_F(OwnWritesTest, AnEmptyVersionIsNoWrite) {
  writes_.record("u", Kind::kPod, "");
  EXPECT_TRUE(seen("u", "", ""));
}

TEST_F(OwnWritesTest, VersionsThatNeverComeAreGivenUpAfterFiveMinutes) {
  writes_.record("u", Kind::kPod, "1000");
  clock_->advance(299s);
  EXPECT_FALSE(seen("u", "1", "1"));
  clock_->advance(2s);
  EXPECT_TRUE(seen("u", "1", "1"));
}

}  // namespace
}  // namespace oarlock::control
