// The IDX reader: valid files, and every kind of invalid file.
#include "workloads/formats/image_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class IdxFileTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& content) const {
    const auto path = directory_.path() / "file";
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::filesystem::path write_gz(const std::string& content) const {
    const auto path = directory_.path() / "file.gz";
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, content.data(), static_cast<unsigned>(content.size())), static_cast<int>(content.size()));
    gzclose(file);
    return path;
  }

  static void expect_error(const Result<IdxFile>& result, ExitCode code, const std::string& part) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_THAT(result.error().message, HasSubstr(part));
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  }

  test::TemporaryDirectory directory_;
};

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text.push_back(static_cast<char>(value));
  return text;
}

// 2 x 3 unsigned bytes.
std::string small_idx() { return bytes({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 20, 30, 40, 50, 255}); }

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Opening a pipe waits for a writer, and reading from a device has no end.
TEST_F(IdxFileTest, RejectsAnythingElseThanARegularFile) {
  const std::filesystem::path path = directory_.path() / "other";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error(read_idx_file(path, 2), ExitCode::kNoInput, "other: not a regular file");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  expect_error(read_idx_file(path, 2), ExitCode::kNoInput, "other: not a regular file");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("other", path);
  expect_error(read_idx_file(path, 2), ExitCode::kNoInput, "other: cannot be opened: Too many levels");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  expect_error(read_idx_file(path, 2), ExitCode::kNoInput, "other: not a regular file");
}

// A sparse file, or a small compressed one, can contain any number of zeros.
TEST_F(IdxFileTest, RejectsMoreElementsThanThereIsMemory) {
  const std::filesystem::path path = write(bytes({0, 0, 8, 2, 0, 16, 0, 0, 0, 15, 255, 255}));
  std::filesystem::resize_file(path, uint64_t{1} << 40);
  expect_error(read_idx_file(path, 2), ExitCode::kOsErr, "of memory");
}

TEST_F(IdxFileTest, ReadsPlainAndGzip) {
  for (const auto& path : {write(small_idx()), write_gz(small_idx())}) {
    const auto idx = read_idx_file(path, 2);
    ASSERT_TRUE(idx) << idx.error().message;
    EXPECT_THAT(idx->dims, ElementsAre(2, 3));
    EXPECT_THAT(idx->bytes, ElementsAre(10, 20, 30, 40, 50, 255));
  }
}

TEST_F(IdxFileTest, ReportsMissingFile) {
  expect_error(read_idx_file(directory_.path() / "none", 2), ExitCode::kNoInput,
               "none: cannot be opened: No such file");
  expect_error(read_idx_file(directory_.path(), 2), ExitCode::kNoInput, "not a regular file");
}

TEST_F(IdxFileTest, DetectsEveryTruncation) {
  const std::string whole = small_idx();
  for (size_t size = 1; size < whole.size(); ++size) {  // 0: see RejectsEmptyFile
    const auto result = read_idx_file(write(whole.substr(0, size)), 2);
    ASSERT_FALSE(result) << size;
    EXPECT_EQ(result.error().code, ExitCode::kDataErr);
    EXPECT_THAT(result.error().message, AllOf(HasSubstr("file: "), HasSubstr("expected"), HasSubstr("found")));
  }
  expect_error(read_idx_file(write(whole.substr(0, 16)), 2), ExitCode::kDataErr,
               "expected 6 bytes of elements, found 4");
}

TEST_F(IdxFileTest, DetectsTruncatedAndDamagedGzip) {
  std::string content = small_idx();
  const std::string whole = content_of(write_gz(content));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(read_idx_file(write(whole.substr(0, size)), 2)) << size;
  }
  expect_error(read_idx_file(write(whole.substr(0, whole.size() - 3)), 2), ExitCode::kDataErr,
               "gzip stream is truncated");
  std::string damaged = whole;
  damaged[whole.size() - 6] = static_cast<char>(damaged[whole.size() - 6] ^ 1);  // in the CRC
  expect_error(read_idx_file(write(damaged), 2), ExitCode::kDataErr, "gzip stream is damaged");
}

TEST_F(IdxFileTest, ReadsGzipOfSeveralMembersWithPadding) {
  const std::string content = small_idx();
  const std::string first = content_of(write_gz(content.substr(0, 9)));
  const std::string second = content_of(write_gz(content.substr(9)));
  EXPECT_TRUE(read_idx_file(write(first + second), 2));
  EXPECT_TRUE(read_idx_file(write(first + second + std::string(1000, '\0')), 2));
  expect_error(read_idx_file(write(first + second + "x"), 2), ExitCode::kDataErr, "other data follows at byte");
}

TEST_F(IdxFileTest, RejectsTrailingData) {
  expect_error(read_idx_file(write(small_idx() + "x"), 2), ExitCode::kDataErr,
               "expected the end of the file after 6 elements (2 x 3)");
}

TEST_F(IdxFileTest, RejectsInvalidHeader) {
  expect_error(read_idx_file(write("PNG not idx"), 2), ExitCode::kDataErr,
               "not an idx file: expected it to start with 00 00 08 02, found 50 4e 47 20");
  std::string floats = small_idx();
  floats[2] = 0x0d;
  expect_error(read_idx_file(write(floats), 2), ExitCode::kDataErr,
               "expected elements of type 0x08 (unsigned byte), found type 0x0d");
  expect_error(read_idx_file(write(small_idx()), 3), ExitCode::kDataErr, "expected 3 dimension(s), found 2");
  std::string empty = small_idx();
  empty[7] = 0;
  expect_error(read_idx_file(write(empty), 2), ExitCode::kDataErr, "dimensions 0");
}

TEST_F(IdxFileTest, RejectsEmptyFile) {
  expect_error(read_idx_file(write(""), 2), ExitCode::kDataErr, "the file, or its gzip stream, is empty");
  expect_error(read_idx_file(write_gz(""), 2), ExitCode::kDataErr, "gzip stream, is empty; fetch the file again");
}

TEST_F(IdxFileTest, HugeHeaderDoesNotAllocateMemory) {
  expect_error(read_idx_file(write(bytes({0, 0, 8, 2, 255, 255, 255, 255, 0, 0, 0, 200, 1})), 2), ExitCode::kDataErr,
               "found 1: the file is truncated");
  expect_error(read_idx_file(write(bytes({0, 0, 8, 2, 255, 255, 255, 255, 255, 255, 255, 255, 1})), 2),
               ExitCode::kDataErr, "invalid dimensions");
}

}  // namespace
}  // namespace oarlock
