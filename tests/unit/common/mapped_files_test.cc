// The table of mapped files, with addresses that nothing is mapped to: it reads none of them.
#include "common/mapped_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace oarlock {
namespace {

using testing::HasSubstr;

const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }

std::string fault_at(uintptr_t address) {
  const std::optional<Error> fault = mapped_file_fault(at(address));
  return fault ? fault->message : "";
}

TEST(MappedFiles, FindsTheFileOfAnAddress) {
  add_mapped_file(at(0x1000), 0x1000, "/no/first");
  add_mapped_file(at(0x2000), 0x10, "/no/second");
  EXPECT_EQ(fault_at(0xfff), "");
  EXPECT_THAT(fault_at(0x1000), HasSubstr("/no/first: cannot be read"));
  EXPECT_THAT(fault_at(0x1fff), HasSubstr("/no/first"));
  EXPECT_THAT(fault_at(0x2000), HasSubstr("/no/second"));
  EXPECT_EQ(fault_at(0x2010), "");
  remove_mapped_file(at(0x1000));
  EXPECT_EQ(fault_at(0x1000), "");
  EXPECT_THAT(fault_at(0x200f), HasSubstr("/no/second"));
  remove_mapped_file(at(0x2000));
  EXPECT_EQ(fault_at(0x2000), "");
}

TEST(MappedFiles, FileBeyondTheTableIsNotRecorded) {
  for (size_t i = 1; i <= kMaxMappedFiles + 1; ++i) add_mapped_file(at(i * 0x1000), 0x1000, "/no/file");
  EXPECT_NE(fault_at(kMaxMappedFiles * 0x1000), "");
  EXPECT_EQ(fault_at((kMaxMappedFiles + 1) * 0x1000), "");
  for (size_t i = 1; i <= kMaxMappedFiles + 1; ++i) remove_mapped_file(at(i * 0x1000));
  add_mapped_file(at(0x1000), 0x1000, "/no/later");  // the slots are free again
  EXPECT_THAT(fault_at(0x1000), HasSubstr("/no/later"));
  remove_mapped_file(at(0x1000));
}

TEST(MappedFiles, OtherThreadsDoNotHideAFile) {
  constexpr int kRounds = 2000;
  std::atomic<bool> is_done = false;
  std::vector<std::jthread> others;
  for (uintptr_t i = 1; i <= 2; ++i) {
    others.emplace_back([i, &is_done] {
      while (!is_done) {
        add_mapped_file(at(i << 20), 1 << 20, "/no/other");
        remove_mapped_file(at(i << 20));
      }
    });
  }
  for (int round = 0; round < kRounds; ++round) {
    add_mapped_file(at(0x1000), 0x1000, "/no/own");
    ASSERT_THAT(fault_at(0x1800), HasSubstr("/no/own"));
    remove_mapped_file(at(0x1000));
    ASSERT_EQ(fault_at(0x1800), "");
  }
  is_done = true;
}

}  // namespace
}  // namespace oarlock
