#include "common/text.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace oarlock {
namespace {

TEST(Counted, SingularIsForOneOnly) {
  EXPECT_EQ(counted(1, "node"), "1 node");
  EXPECT_EQ(counted(0, "node"), "0 nodes");
  EXPECT_EQ(counted(size_t{12}, "more note"), "12 more notes");
  EXPECT_EQ(counted(1, "recovery", "recoveries"), "1 recovery");
  EXPECT_EQ(counted(2, "recovery", "recoveries"), "2 recoveries");
}

}  // namespace
}  // namespace oarlock
