// torchrun's --redirects, --tee and --local-ranks-filter.
#include "cli/launch/console.h"

#include <gmock/gmock.h>

namespace oarlock::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(LogOptions, SelectsStreamsOfAllRanks) {
  EXPECT_THAT(streams_by_rank("--tee", "", 2).value(), ElementsAre(0, 0));
  EXPECT_THAT(streams_by_rank("--tee", "3", 2).value(), ElementsAre(3, 3));
}

TEST(LogOptions, SelectsStreamsOfSomeRanks) {
  EXPECT_THAT(streams_by_rank("--redirects", "0:3,2:1", 3).value(), ElementsAre(3, 0, 1));
  EXPECT_THAT(streams_by_rank("--redirects", "12:2", 13).value().back(), 2);
}

TEST(LogOptions, RejectsOtherValues) {
  for (const char* value : {"4", "x", "0:4", "2:1", "0:", ":1", "0:1,,1:1", "-1:1", "1:1:1"}) {
    const auto streams = streams_by_rank("--redirects", value, 2);
    ASSERT_FALSE(streams.has_value()) << value;
    EXPECT_EQ(streams.error().code, ExitCode::kUsage);
    EXPECT_THAT(streams.error().message, HasSubstr("--redirects="));
  }
}

TEST(LogOptions, FiltersRanks) {
  EXPECT_THAT(shown_ranks("", 3).value(), ElementsAre(true, true, true));
  EXPECT_THAT(shown_ranks("0,2", 3).value(), ElementsAre(true, false, true));
  EXPECT_THAT(shown_ranks("3", 3).error().message, HasSubstr("local ranks below 3"));
  EXPECT_FALSE(shown_ranks("0,,1", 3).has_value());
}

}  // namespace
}  // namespace oarlock::launch
