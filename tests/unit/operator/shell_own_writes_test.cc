#include "operator/shell/own_writes.h"

#include <gmock/gmock.h>

#include "kube/client/request.h"
#include "tests/support/fake_clock.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;

class OwnWritesTest : public ::testing::Test {
 protected:
  // Whether the job may be reconciled while the cache is at these versions.
  bool is_fresh(const std::string& uid, const std::string& jobs, const std::string& pods) {
    return writes_.is_cache_fresh(uid, [&](ResourceKind kind, const std::string& wanted) {
      return kube::compare_resource_versions(kind == ResourceKind::kJob ? jobs : pods, wanted) >= 0;
    });
  }
  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  OwnWrites writes_{clock_};
};

TEST_F(OwnWritesTest, CacheIsFreshWithoutWrites) { EXPECT_TRUE(is_fresh("u", "", "")); }

TEST_F(OwnWritesTest, WaitsForNewestVersionOfEachKind) {
  writes_.record("u", ResourceKind::kPod, "101");
  writes_.record("u", ResourceKind::kPod, "99");  // answers may come out of order
  writes_.record("u", ResourceKind::kJob, "50");
  EXPECT_FALSE(is_fresh("u", "49", "99"));
  EXPECT_FALSE(is_fresh("u", "49", "100"));
  EXPECT_FALSE(is_fresh("u", "50", "100"));
  EXPECT_TRUE(is_fresh("u", "50", "101"));
  EXPECT_TRUE(is_fresh("u", "0", "0"));  // has_seen is not called again
}

TEST_F(OwnWritesTest, IdentifiesJobsByUid) {
  writes_.record("old", ResourceKind::kPod, "101");
  EXPECT_TRUE(is_fresh("new", "", ""));
  EXPECT_FALSE(is_fresh("old", "", ""));
  writes_.forget("old");
  EXPECT_TRUE(is_fresh("old", "", ""));
}

TEST_F(OwnWritesTest, IgnoresEmptyVersion) {
  writes_.record("u", ResourceKind::kPod, "");
  EXPECT_TRUE(is_fresh("u", "", ""));
}

TEST_F(OwnWritesTest, RecordsExpireAfterFiveMinutes) {
  writes_.record("u", ResourceKind::kPod, "1000");
  clock_->advance(299s);
  EXPECT_FALSE(is_fresh("u", "1", "1"));
  clock_->advance(2s);
  EXPECT_TRUE(is_fresh("u", "1", "1"));
}

}  // namespace
}  // namespace oarlock::control
