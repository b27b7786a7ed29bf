#include "common/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace oarlock {
namespace {

using testing::MatchesRegex;

TEST(Random, FormsOfIdentifiers) {
  EXPECT_THAT(random_hex(16), MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ(random_hex(0), "");
  EXPECT_THAT(random_uuid(), MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
}

TEST(Random, ValuesDiffer) {
  std::set<std::string> texts;
  std::set<uint64_t> numbers;
  for (int i = 0; i < 100; ++i) {
    texts.insert(random_uuid());
    texts.insert(random_hex(16));
    numbers.insert(random_number());
  }
  EXPECT_EQ(texts.size(), 200U);
  EXPECT_EQ(numbers.size(), 100U);
}

}  // namespace
}  // namespace oarlock
