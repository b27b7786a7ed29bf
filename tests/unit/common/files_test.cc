#include "common/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "common/temporary_files.h"
#include "tests/support/blocked_file.h"
#include "tests/support/system_calls.h"
#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

using test::SystemCall;

TEST(Files, AtomicWriteLeavesNoOtherFile) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "a";
  ASSERT_TRUE(write_file_atomically(path, "one"));
  ASSERT_TRUE(write_file_atomically(path, std::string(1 << 20, 'x')));
  EXPECT_EQ(read_file(path)->size(), 1u << 20);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(Files, AtomicWriteFollowsNoLinkAndWaitsForNoPipe) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "a";
  std::ofstream(directory.path() / "target") << "content";
  std::filesystem::create_symlink("target", path);
  ASSERT_TRUE(write_file_atomically(path, "one"));
  EXPECT_EQ(*read_file(path), "one");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path)));
  EXPECT_EQ(*read_file(directory.path() / "target"), "content");
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  ASSERT_TRUE(write_file_atomically(path, "two"));
  EXPECT_EQ(*read_file(path), "two");
}

TEST(Files, FindsTheTemporaryFilesOfKilledProcesses) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "a";
  test::with_system_calls([&] { return write_file_atomically(path, "one") ? 0 : 1; },
                          [&](const SystemCall& call) {
                            if (call.is_rename())
                              ::kill(std::stoi(temporary_files(directory.path())
                                                   .at(0)
                                                   .string()
                                                   .substr(path.string().size() + std::string(".tmp-").size())),
                                     SIGKILL);
                            return 0;
                          });
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(temporary_files(directory.path(), "a").size(), 1U);
  std::ofstream(directory.path() / "b.tmp-77");  // of an earlier release
  for (const char* other : {"a.tmp-", "a.tmp-mine", "a.tmp-77-mine", ".tmp-77", "a.tmp-77.txt"})
    std::ofstream(directory.path() / other);
  EXPECT_EQ(temporary_files(directory.path(), "a").size(), 1U);
  EXPECT_EQ(temporary_files(directory.path()).size(), 2U);
}

TEST(Files, ReadsOnlyRegularFilesWithinTheLimit) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "a";
  std::ofstream(path) << "12345";
  std::filesystem::create_symlink(path, directory.path() / "link");
  EXPECT_EQ(read_regular_file(directory.path() / "link", 5).value_or(""), "12345");
  EXPECT_THAT(read_regular_file(path, 4).error().message, ::testing::HasSubstr("longer than 4 bytes"));
  ASSERT_EQ(::mkfifo((directory.path() / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", directory.path() / "endless");
  for (const std::filesystem::path& other :
       {directory.path() / "fifo", directory.path() / "endless", directory.path()}) {
    const auto content = read_regular_file(other, 5);
    ASSERT_FALSE(content) << other;
    EXPECT_EQ(content.error().code, ExitCode::kNoInput);
    EXPECT_EQ(content.error().message, other.string() + ": not a regular file");
  }
  EXPECT_EQ(read_regular_file(directory.path() / "missing", 5).error().code, ExitCode::kNoInput);
}

// A file server and a Samba server take leases on files that others may open, too.
TEST(Files, ReadsTheBeginningOfARegularFile) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "a";
  std::ofstream(path) << "12345";
  EXPECT_EQ(*read_beginning(path, 3), "123");
  EXPECT_EQ(*read_beginning(path, 9), "12345");
  std::filesystem::resize_file(path, uint64_t{1} << 40);  // sparse
  EXPECT_EQ(read_beginning(path, 6)->size(), 6u);
  EXPECT_EQ(read_beginning("/dev/zero", 1).error().code, ExitCode::kNoInput);
}

TEST(Files, WritesInPlaceAndWaitsForNoPipe) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "a";
  std::ofstream(path) << "longer than the new content";
  std::filesystem::create_hard_link(path, directory.path() / "mounted");
  ASSERT_TRUE(write_in_place(path, "short"));
  EXPECT_EQ(*read_file(directory.path() / "mounted"), "short");
  ASSERT_TRUE(write_in_place(directory.path() / "new", "content"));
  const auto pipe = directory.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Result<void> without_reader = write_in_place(pipe, "content");
  ASSERT_FALSE(without_reader);
  EXPECT_NE(without_reader.error().message.find(pipe.string()), std::string::npos);
  EXPECT_EQ(write_in_place("/dev/full", "content").error().code, ExitCode::kIoErr);
}

TEST(Files, RegularFileWithALeaseIsReadAfterIt) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "a";
  std::ofstream(path) << "12345";
  std::optional<test::BlockedFile> blocked(path);
  std::future<Result<std::string>> content = std::async(std::launch::async, [&] { return read_regular_file(path, 5); });
  EXPECT_TRUE(blocked->wait_for_reader());
  blocked.reset();
  EXPECT_EQ(content.get().value_or(""), "12345");
}

// After a power failure the file has the old content or the new one, and the new one for good once the call has
// returned.
TEST(Files, MemoryFileHasItsContentAndIsNotInherited) {
  const auto file = create_memory_file("oarlock-test", "content");
  ASSERT_TRUE(file) << file.error().message;
  const std::filesystem::path link = fmt::format("/proc/self/fd/{}", file->get());
  EXPECT_THAT(std::filesystem::read_symlink(link).string(), testing::StartsWith("/memfd:oarlock-test"));
  EXPECT_EQ(read_file(link), "content");
  EXPECT_EQ(::fcntl(file->get(), F_GETFD), FD_CLOEXEC);
}

TEST(Files, AtomicWriteSyncsFileAndDirectory) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "a";
  const auto calls = test::system_calls(directory.path(), [&] { return write_file_atomically(path, "new") ? 0 : 1; });
  const size_t created = test::position_of(calls, [](const SystemCall& call) { return call.creates; });
  ASSERT_LT(created, calls.size());
  const std::string temporary = calls[created].path;
  EXPECT_NE(temporary, path.string());
  const auto of_temporary = [&](const SystemCall& call) { return call.path == temporary; };
  const size_t written =
      test::position_of(calls, [&](const SystemCall& call) { return of_temporary(call) && call.is_write(); }, created);
  const size_t synced =
      test::position_of(calls, [&](const SystemCall& call) { return of_temporary(call) && call.is_sync(); }, written);
  const size_t renamed = test::position_of(calls, [&](const SystemCall& call) { return call.is_rename(); });
  const size_t directory_synced = test::position_of(
      calls, [&](const SystemCall& call) { return call.is_sync() && call.path == directory.path(); }, renamed);
  EXPECT_LT(written, synced);
  EXPECT_LT(synced, renamed) << "the file must be durable before it gets its name";
  EXPECT_EQ(test::position_of(
                calls, [&](const SystemCall& call) { return of_temporary(call) && call.is_write(); }, synced),
            calls.size())
      << "written to after the fsync";
  ASSERT_LT(renamed, calls.size());
  EXPECT_EQ(calls[renamed].path, temporary);
  EXPECT_EQ(calls[renamed].target, path.string());
  EXPECT_LT(directory_synced, calls.size()) << "the rename must be durable before the call returns";
}

// Whichever of its calls fails, the failure is reported, the old content stays until the rename, and nothing else is
// left.
TEST(Files, ReportsEveryFailureOfAtomicWrite) {
  int failures = 0;
  for (int number = 0;; ++number) {
    const test::TemporaryDirectory directory;
    const auto path = directory.path() / "a";
    ASSERT_TRUE(write_file_atomically(path, "old"));
    int seen = 0;
    std::string failed;
    const int code = test::with_system_calls(
        [&] {
          const auto written = write_file_atomically(path, "new");
          return written ? 0 : to_int(written.error().code);
        },
        [&](const SystemCall& call) {
          if (!call.path.starts_with(directory.path().string()) || call.name == "unlink" || seen++ != number) return 0;
          failed = call.name + " " + call.path;
          return EIO;
        });
    if (failed.empty()) break;
    ++failures;
    EXPECT_EQ(code, to_int(ExitCode::kIoErr)) << failed;
    EXPECT_THAT(*read_file(path), testing::AnyOf("old", "new")) << failed;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1) << failed;
  }
  EXPECT_GE(failures, 5);  // open, write, fsync, rename, fsync of the directory
}

TEST(Files, SyncsParentsOfNewDirectories) {
  const test::TemporaryDirectory directory;
  const auto calls = test::system_calls(directory.path(),
                                        [&] { return make_writable_directory(directory.path() / "c" / "d") ? 0 : 1; });
  for (const auto& made : {directory.path() / "c", directory.path() / "c" / "d"}) {
    const size_t created =
        test::position_of(calls, [&](const SystemCall& call) { return call.creates && call.path == made.string(); });
    ASSERT_LT(created, calls.size());
    EXPECT_LT(
        test::position_of(
            calls, [&](const SystemCall& call) { return call.is_sync() && call.path == made.parent_path().string(); },
            created),
        calls.size())
        << made;
  }
}

TEST(Files, NamesMissingFile) {
  const auto result = read_file("/nonexistent/file");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ExitCode::kNoInput);
  EXPECT_NE(result.error().message.find("/nonexistent/file"), std::string::npos);
}

TEST(Files, FailedWriteKeepsOldContent) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "a";
  ASSERT_TRUE(write_file_atomically(path, "old"));
  for (const char* failed : {"write", "fsync", "rename"}) {
    EXPECT_EQ(test::with_system_calls([&] { return write_file_atomically(path, "new") ? 0 : 1; },
                                      [&](const SystemCall& call) { return call.name == failed ? EIO : 0; }),
              1);
    EXPECT_EQ(*read_file(path), "old");
    EXPECT_TRUE(temporary_files(directory.path()).empty()) << failed;
  }
}

TEST(Files, RejectsDirectoryUnderFile) {
  const test::TemporaryDirectory directory;
  ASSERT_TRUE(write_file_atomically(directory.path() / "a", ""));
  const auto result = make_writable_directory(directory.path() / "a" / "b");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ExitCode::kCantCreate);
  EXPECT_TRUE(make_writable_directory(directory.path() / "c" / "d"));
  EXPECT_TRUE(make_writable_directory(directory.path() / "c" / "d"));
}

// A pipe takes fewer bytes than these in one call.
TEST(Files, VisitsADirectory) {
  const test::TemporaryDirectory directory;
  std::vector<std::string> names;
  const auto add = [&names](const std::filesystem::path& path) { names.push_back(path.filename().string()); };
  EXPECT_FALSE(visit_directory(directory.path(), add));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(write_file_atomically(directory.path() / name, ""));
  EXPECT_FALSE(visit_directory(directory.path(), add));
  EXPECT_THAT(names, testing::UnorderedElementsAre("a", "b"));
  EXPECT_EQ(visit_directory(directory.path() / "missing", add), std::errc::no_such_file_or_directory);
}

// As a file server may; a range-based for loop would throw.
TEST(Files, ReturnsAFailureInTheMiddleOfADirectory) {
  const test::TemporaryDirectory directory;
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(std::ofstream(directory.path() / fmt::format("file-{:04}", i)));
  int reads = 0;
  const int code = test::with_system_calls(
      [&] {
        int visited = 0;
        const std::error_code error = visit_directory(directory.path(), [&visited](const auto&) { ++visited; });
        return error == std::errc::io_error && visited > 0 ? 0 : 1;
      },
      [&](const SystemCall& call) { return call.name == "getdents64" && reads++ == 1 ? EIO : 0; });
  EXPECT_EQ(code, 0);
  EXPECT_GE(reads, 2);
}

TEST(Files, WritesAllInParts) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const std::string bytes(size_t{1} << 20, 'x');
  int error = -1;
  std::jthread thread([&] {
    error = write_all(writer.get(), bytes);
    writer.close();
  });
  std::string got;
  char buffer[4096];
  for (ssize_t size = 1; size > 0;) {
    size = ::read(reader.get(), buffer, sizeof buffer);
    if (size > 0) got.append(buffer, static_cast<size_t>(size));
  }
  thread.join();
  EXPECT_EQ(error, 0);
  EXPECT_EQ(got, bytes);
}

TEST(Files, WriteAllReturnsErrno) {
  const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.open());
  EXPECT_EQ(write_all(full.get(), "x"), ENOSPC);
  EXPECT_EQ(write_all(full.get(), ""), 0);
}

TEST(Files, ScratchDirectoryIsRemovedWithItsContent) {
  const test::TemporaryDirectory directory;
  std::filesystem::path path;
  {
    Result<ScratchDirectory> made = ScratchDirectory::create(directory.path(), "part-");
    ASSERT_TRUE(made) << made.error().message;
    std::optional<ScratchDirectory> first(*std::move(made));
    const ScratchDirectory moved = *std::move(first);
    first.reset();  // the object from which it was moved removes nothing
    path = moved.path();
    EXPECT_EQ(path.parent_path(), directory.path());
    EXPECT_TRUE(path.filename().string().starts_with("part-"));
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
    std::ofstream(path / "file") << "content";
    EXPECT_TRUE(std::filesystem::exists(path / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const Result<ScratchDirectory> failed = ScratchDirectory::create(directory.path() / "missing", "part-");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ExitCode::kNoInput);
}

TEST(Errors, MapsErrnoToExitCode) {
  EXPECT_EQ(fail_errno(ENOSPC, "x").value().code, ExitCode::kIoErr);
  EXPECT_EQ(fail_errno(EACCES, "x").value().code, ExitCode::kNoPermission);
  EXPECT_EQ(fail_errno(ENOENT, "x").value().code, ExitCode::kNoInput);
  EXPECT_NE(fail_errno(ENOENT, "here").value().message.find("here: "), std::string::npos);
}

}  // namespace
}  // namespace oarlock
