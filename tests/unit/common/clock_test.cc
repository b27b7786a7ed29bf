#include "common/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace oarlock {
namespace {

SystemTime at(int64_t milliseconds) { return SystemTime(std::chrono::milliseconds(milliseconds)); }

TEST(Rfc3339, RoundTrip) {
  for (const int64_t seconds : {0L, 951782399L, 1795255872L, 4102444800L}) {
    SystemTime time;
    ASSERT_TRUE(from_rfc3339(to_rfc3339(at(seconds * 1000)), time));
    EXPECT_EQ(time, at(seconds * 1000));
  }
  EXPECT_EQ(to_rfc3339(at(1795255872000)), "2026-11-21T10:11:12Z");
}

TEST(Rfc3339, ParsesFractionsAndOffsets) {
  SystemTime time;
  ASSERT_TRUE(from_rfc3339("1970-01-01T00:00:01.250000Z", time));
  EXPECT_EQ(time, at(1250));
  ASSERT_TRUE(from_rfc3339("1970-01-01T02:30:00+02:30", time));
  EXPECT_EQ(time, at(0));
  ASSERT_TRUE(from_rfc3339("1969-12-31T22:00:00-02:00", time));
  EXPECT_EQ(time, at(0));
}

TEST(Rfc3339, ClampsTimesThatCouldOverflow) {
  SystemTime time;
  for (const char* text : {"2150-01-01T00:00:00Z", "2262-04-12T00:00:00Z", "9999-12-31T23:59:59.999999999-23:59"}) {
    ASSERT_TRUE(from_rfc3339(text, time)) << text;
    EXPECT_EQ(to_rfc3339(time), "2150-01-01T00:00:00Z") << text;
    EXPECT_GT(time + std::chrono::seconds(std::numeric_limits<int32_t>::max()), time);
  }
  for (const char* text : {"0000-01-01T00:00:00Z", "1677-01-01T00:00:00Z", "1899-12-31T23:59:59Z"}) {
    ASSERT_TRUE(from_rfc3339(text, time)) << text;
    EXPECT_EQ(to_rfc3339(time), "1900-01-01T00:00:00Z") << text;
  }
}

TEST(Rfc3339, RejectsInvalidTimes) {
  SystemTime time;
  for (const char* text : {"", "2026-11-21", "2026-11-21T10:11:12", "2026-11-21T10:11:12.Z", "2026-11-21T10:11:12Zx",
                           "now", "2026- 1- 2T 3: 4: 5Z", "2026-11-21T25:11:12Z", "2026-13-21T10:11:12Z",
                           "2026-11-21T10:11:12+24:00", "2026-11-21T10:11:12+00:60", "2026-11-21T10:11:12+-9:-9",
                           "2026-11-21T10:11:12+1:000", "-026-11-21T10:11:12Z", "20261-1-21T10:11:12Z"}) {
    EXPECT_FALSE(from_rfc3339(text, time)) << text;
  }
  EXPECT_FALSE(from_rfc3339(std::string("2026-11-21T10:11:12Z\0x", 22), time));
}

}  // namespace
}  // namespace oarlock
