// The query of /statusz, and which requests for a checkpoint count.
#include "common/status_query.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace oarlock {
namespace {

using std::chrono::seconds;

TEST(StatusQuery, ReadsWhatItWrites) {
  for (const StatusQuery& query : {StatusQuery{"u", std::nullopt}, StatusQuery{"u-1", 1'764'500'000}})
    EXPECT_EQ(parse_status_query(to_string(query)), query);
  EXPECT_EQ(to_string({"u", 5}), "checkpoint=5&uid=u")
      << "a server of an earlier version reads a query that begins with uid=";
  EXPECT_EQ(parse_status_query(""), StatusQuery{});
}

TEST(StatusQuery, IgnoresWhatItDoesNotKnow) {
  for (const char* text : {"checkpoint=&uid=u", "checkpoint=5x&uid=u", "checkpoint=99999999999999999999&uid=u",
                           "checkpoint&uid=u", "&&a=b&uid=u&", "checkpoint5&uid=u"})
    EXPECT_EQ(parse_status_query(text), (StatusQuery{"u", std::nullopt})) << text;
}

TEST(CheckpointRequests, CountOncePerNumberAndMinute) {
  test::FakeClock clock;
  CheckpointRequests requests("u", clock);
  EXPECT_FALSE(requests.add({"u", std::nullopt}));
  EXPECT_TRUE(requests.add({"u", 7}));
  EXPECT_FALSE(requests.add({"u", 7}));
  EXPECT_FALSE(requests.add({"u", 8})) << "too soon";
  clock.advance(CheckpointRequests::kMinInterval - seconds(1));
  EXPECT_FALSE(requests.add({"u", 8}));
  clock.advance(seconds(1));
  EXPECT_FALSE(requests.add({"u", 7})) << "the operator repeats it with each poll";
  EXPECT_TRUE(requests.add({"u", 8})) << "a request is delayed, not lost";
  requests.repeat();
  EXPECT_FALSE(requests.add({"u", 8}));
  clock.advance(CheckpointRequests::kMinInterval);
  EXPECT_TRUE(requests.add({"u", 8})) << "the process that received it has been replaced";
}

TEST(CheckpointRequests, CountWithTheUidOfTheJobOnly) {
  const test::FakeClock clock;
  CheckpointRequests requests("u", clock);
  EXPECT_FALSE(requests.add({"", 7}));
  EXPECT_FALSE(requests.add({"v", 7}));
  EXPECT_TRUE(requests.add({"u", 7}));
  CheckpointRequests outside_of_a_job("", clock);
  EXPECT_FALSE(outside_of_a_job.add({"", 7}));
}

}  // namespace
}  // namespace oarlock
