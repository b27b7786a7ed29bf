// Sizes that a file states, compared with the memory of this machine.
#include "common/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(MemoryLimit, AcceptsTheAvailableMemory) {
  EXPECT_TRUE(expect_memory(0, 8, "file"));
  EXPECT_TRUE(expect_memory(1 << 20, 8, "file"));
  EXPECT_GT(available_memory(), uint64_t{16} << 20);
  EXPECT_LT(available_memory(), uint64_t{1} << 50);
}

TEST(MemoryLimit, RejectsMoreAndOverflow) {
  for (const uint64_t count : {uint64_t{1} << 50, uint64_t{1} << 62, UINT64_MAX}) {
    const Result<void> expected = expect_memory(count, 8, "file.h5: /X");
    ASSERT_FALSE(expected) << count;
    EXPECT_EQ(expected.error().code, ExitCode::kOsErr);
    EXPECT_THAT(expected.error().message,
                AllOf(HasSubstr("file.h5: /X needs"), HasSubstr("are available; give the process more memory")));
  }
}

}  // namespace
}  // namespace oarlock
