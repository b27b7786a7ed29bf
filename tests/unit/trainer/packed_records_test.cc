// Packed records: reading from several threads, damaged files, and a full disk.
#include "workloads/formats/packed_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<uint8_t> record(int64_t i, size_t length) {
  std::vector<uint8_t> bytes(length);
  for (size_t j = 0; j < length; ++j) bytes[j] = static_cast<uint8_t>(static_cast<size_t>(i) * 31 + j * 7);
  return bytes;
}

class PackedRecordsTest : public testing::Test {
 protected:
  void write(const std::vector<size_t>& lengths) {
    Result<PackedRecordsWriter> writer = PackedRecordsWriter::create(stem_);
    ASSERT_TRUE(writer) << writer.error().message;
    int64_t i = 0;
    for (const size_t length : lengths) writer->add(record(i++, length));
    const Result<void> finished = writer->finish();
    ASSERT_TRUE(finished) << finished.error().message;
  }

  std::string error() {
    const Result<PackedRecords> opened = PackedRecords::open(stem_);
    EXPECT_FALSE(opened);
    return opened ? "" : opened.error().message;
  }

  test::TemporaryDirectory directory_;
  fs::path stem_ = directory_.path() / "some";
};

TEST_F(PackedRecordsTest, ReadsRecordsFromSeveralThreads) {
  std::vector<size_t> lengths;
  for (size_t i = 0; i < 1003; ++i) lengths.push_back(1 + i * i % 700);
  lengths.push_back(PackedRecords::kMaxLength);
  lengths.push_back(1);
  write(lengths);
  const Result<PackedRecords> packed = PackedRecords::open(stem_);
  ASSERT_TRUE(packed) << packed.error().message;
  ASSERT_EQ(packed->size(), static_cast<int64_t>(lengths.size()));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < packed->size(); ++i) {
        const std::span<const uint8_t> got = (*packed)[i];
        const bool right = packed->length(i) == static_cast<int64_t>(lengths[static_cast<size_t>(i)]) &&
                           std::vector<uint8_t>(got.begin(), got.end()) == record(i, lengths[static_cast<size_t>(i)]);
        if (!right) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST_F(PackedRecordsTest, IndexTakesTwoAndAHalfBytesPerRecord) {
  write(std::vector<size_t>(16'000, 3));
  EXPECT_EQ(fs::file_size(stem_.string() + ".index"), 24 + 40'000);
  EXPECT_EQ(fs::file_size(stem_.string() + ".bytes"), 48'000);
}

TEST_F(PackedRecordsTest, AcceptsNoRecords) {
  write({});
  const Result<PackedRecords> packed = PackedRecords::open(stem_);
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(packed->size(), 0);
}

TEST_F(PackedRecordsTest, RejectsUnfinishedFiles) {
  {
    Result<PackedRecordsWriter> writer = PackedRecordsWriter::create(stem_);
    ASSERT_TRUE(writer);
    for (int64_t i = 0; i < 16; ++i) writer->add(record(i, 100));
  }
  EXPECT_THAT(error(), HasSubstr("some.index: damaged"));
}

TEST_F(PackedRecordsTest, RejectsDamagedFiles) {
  write({10, 20, 30});
  fs::resize_file(stem_.string() + ".bytes", 59);
  EXPECT_THAT(error(), HasSubstr("some.index: damaged"));
  write({10, 20, 30});
  fs::resize_file(stem_.string() + ".index", 60);
  EXPECT_THAT(error(), HasSubstr("some.index: damaged"));
  std::ofstream(stem_.string() + ".index") << "oarp";
  EXPECT_THAT(error(), HasSubstr("remove the directory " + directory_.path().string()));
  fs::remove(stem_.string() + ".index");
  EXPECT_THAT(error(), HasSubstr("No such file"));
}

// The sum of the sizes would overflow.
TEST_F(PackedRecordsTest, RejectsNumbersThatOverflow) {
  const auto overwrite = [&](size_t at, uint64_t number) {
    std::fstream index(stem_.string() + ".index", std::ios::in | std::ios::out | std::ios::binary);
    index.seekp(static_cast<std::streamoff>(at));
    index.write(reinterpret_cast<const char*>(&number), sizeof number);
  };
  write({10, 20, 30});
  for (const uint64_t records : {UINT64_MAX, UINT64_MAX - 15, uint64_t{17}, uint64_t{0}}) {
    overwrite(8, records);
    EXPECT_THAT(error(), HasSubstr("some.index: damaged")) << records;
  }
  write({});
  overwrite(8, UINT64_MAX);
  EXPECT_THAT(error(), HasSubstr("some.index: damaged"));
  write({10, 20, 30});
  for (const uint64_t begin : {UINT64_MAX, UINT64_MAX - 29, uint64_t{61}}) {
    overwrite(24, begin);
    const Result<PackedRecords> packed = PackedRecords::open(stem_);
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_THROW(static_cast<void>((*packed)[2]), ErrorException) << begin;
  }
}

TEST_F(PackedRecordsTest, ReportsFullDisk) {
  fs::create_symlink("/dev/full", stem_.string() + ".bytes");
  Result<PackedRecordsWriter> writer = PackedRecordsWriter::create(stem_);
  ASSERT_TRUE(writer) << writer.error().message;
  Result<void> added;
  for (int64_t i = 0; i < 1000 && added; ++i) added = writer->add(record(i, 100));
  ASSERT_FALSE(added) << "a full disk is reported at the end only";
  EXPECT_EQ(added.error().code, ExitCode::kIoErr);
  EXPECT_EQ(writer->finish().error().code, ExitCode::kIoErr);
}

}  // namespace
}  // namespace oarlock
