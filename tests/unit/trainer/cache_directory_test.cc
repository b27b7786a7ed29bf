// Cache directories that several processes build at the same time. Locks of a file that two threads have opened exclude
// each other as those of two processes do.
#include "trainer/data/cache_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/file_lock.h"
#include "common/files.h"
#include "tests/support/flock_error.h"
#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Standard error, until it goes out of scope.
class StandardErrorPipe {
 public:
  StandardErrorPipe() : previous_(::dup(STDERR_FILENO)) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    reader_ = FileDescriptor(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  ~StandardErrorPipe() { ::dup2(previous_.get(), STDERR_FILENO); }
  StandardErrorPipe(const StandardErrorPipe&) = delete;
  StandardErrorPipe& operator=(const StandardErrorPipe&) = delete;

  // Waits until something is written.
  std::string read() const {
    char text[4096];
    const ssize_t length = ::read(reader_.get(), text, sizeof text);
    return {text, length > 0 ? static_cast<size_t>(length) : 0};
  }

 private:
  FileDescriptor previous_;
  FileDescriptor reader_;
};

TEST(CacheDirectory, OneProcessBuildsAndTheOthersReportThatTheyWait) {
  const TemporaryDirectory temporary;
  const fs::path directory = temporary.path() / "cache" / "data";
  const Logger log(LogFormat::kText, LogLevel::kInfo);
  std::thread second;
  Result<void> seen;
  std::string reported;
  const Result<void> built = build_cache_directory(directory, log, [&](const fs::path& part) -> Result<void> {
    const StandardErrorPipe standard_error;
    second = std::thread([&] {
      seen = build_cache_directory(directory, log,
                                   [](const fs::path&) { return fail(ExitCode::kSoftware, "built twice"); });
    });
    reported = standard_error.read();
    std::ofstream(part / "file") << "content";
    return {};
  });
  second.join();
  EXPECT_TRUE(built) << built.error().message;
  EXPECT_TRUE(seen) << seen.error().message;
  EXPECT_THAT(reported, HasSubstr("waiting for another process that converts data"));
  EXPECT_THAT(reported, HasSubstr((directory.parent_path() / "lock").string()));
  EXPECT_TRUE(fs::exists(directory / "file"));
}

TEST(CacheDirectory, ADirectoryIsAbsentOrComplete) {
  const TemporaryDirectory temporary;
  const fs::path directory = temporary.path() / "data";
  const fs::path left = temporary.path() / "other.part";  // of a process that was killed
  fs::create_directory(left);
  const Result<void> failed =
      build_cache_directory(directory, Logger::silent(), [&](const fs::path& part) -> Result<void> {
        EXPECT_FALSE(fs::exists(left));
        std::ofstream(part / "file") << "half";
        return fail(ExitCode::kDataErr, "no data");
      });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no data");
  EXPECT_FALSE(fs::exists(directory));
  EXPECT_FALSE(fs::exists(directory.string() + ".part"));
}

void write(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

// ---- Entries -----------------------------------------------------------------------------------------------------

// A source, and a conversion that copies it to "data".
class CacheEntryTest : public testing::Test {
 protected:
  CacheEntryTest() { write(source_, "first"); }

  Result<CacheEntry> try_open() {
    return open_cache_entry(key_, Logger::silent(), [&](const fs::path& part) -> Result<void> {
      ++built_;
      if (fails_) return fail(ExitCode::kDataErr, "no data");
      const Result<std::string> content = read_file(key_.sources.front());
      write(part / "data", content.value_or("a directory"));
      if (const auto act = std::exchange(while_building_, nullptr)) act(part);
      return {};
    });
  }

  CacheEntry open() {
    Result<CacheEntry> entry = try_open();
    EXPECT_TRUE(entry) << entry.error().message;
    if (!entry) throw std::runtime_error(entry.error().message);
    return *std::move(entry);
  }

  std::string content() { return read_file(open().path() / "data").value_or("it cannot be read"); }

  std::set<std::string> entries() const {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(key_.directory))
      if (entry.path().filename() != "lock") out.insert(entry.path().filename());
    return out;
  }

  TemporaryDirectory temporary_;
  const fs::path source_ = temporary_.path() / "some.txt";
  CacheKey key_{
      .directory = cache_directory(source_, ""), .sources = {source_}, .kind = "copies", .version = 1, .options = "a"};
  int built_ = 0;
  bool fails_ = false;
  std::function<void(const fs::path&)> while_building_;  // called once
};

TEST_F(CacheEntryTest, IsBuiltOncePerContentAndOptions) {
  EXPECT_EQ(content(), "first");
  EXPECT_EQ(content(), "first");
  EXPECT_EQ(built_, 1);
  fs::last_write_time(source_, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(content(), "first");
  EXPECT_EQ(built_, 1) << "the content is the same";
  key_.options = "b";
  open();
  EXPECT_EQ(built_, 2);
  EXPECT_THAT(entries(), SizeIs(2));
}

// Each row is a change that leaves size and modification time as they were.
TEST_F(CacheEntryTest, IsBuiltAgainForAnotherContentOfEqualSizeAndTime) {
  const auto time = fs::last_write_time(source_);
  EXPECT_EQ(content(), "first");
  write(source_, "other");
  fs::last_write_time(source_, time);
  EXPECT_EQ(content(), "other");
  write(source_.string() + ".new", "third");
  fs::last_write_time(source_.string() + ".new", time);
  fs::rename(source_.string() + ".new", source_);
  EXPECT_EQ(content(), "third");
  write(temporary_.path() / "elsewhere", "again");
  fs::last_write_time(temporary_.path() / "elsewhere", time);
  fs::remove(source_);
  fs::create_symlink("elsewhere", source_);
  EXPECT_EQ(content(), "again");
  EXPECT_THAT(entries(), SizeIs(1)) << "nothing uses the others";
}

// An array of zarr version 3 has its chunks in c/0/0.
TEST_F(CacheEntryTest, IsBuiltAgainWhenAFileDeepInADirectoryChanges) {
  const fs::path store = temporary_.path() / "store";
  const fs::path chunk = store / "array" / "c" / "0" / "0";
  write(store / "array" / "zarr.json", "{}");
  write(chunk, "1");
  key_.sources = {store / "array"};
  open();
  open();
  ASSERT_EQ(built_, 1);
  write(chunk, "2");
  open();
  EXPECT_EQ(built_, 2);
  fs::rename(chunk, chunk.parent_path() / "1");
  open();
  EXPECT_EQ(built_, 3);
  fs::remove(chunk.parent_path() / "1");
  open();
  EXPECT_EQ(built_, 4);
}

TEST_F(CacheEntryTest, ALinkToAParentDirectoryIsNotFollowed) {
  const fs::path array = temporary_.path() / "store" / "array";
  write(array / "c" / "0", "1");
  key_.sources = {array};
  fs::create_directory_symlink(".", array / "c" / "here");
  fs::create_directory_symlink("..", array / "c" / "above");
  open();
  EXPECT_EQ(built_, 1);
  write(array / "c" / "1", "2");
  open();
  EXPECT_EQ(built_, 2);
}

TEST_F(CacheEntryTest, CopiesOfTheSourceShareAnEntryWithEqualDigest) {
  key_.directory = temporary_.path() / "shared";
  const std::string digest = open().content_digest();
  const fs::path copy = temporary_.path() / "node" / "some.txt";
  write(copy, "first");
  key_.sources = {copy};
  EXPECT_EQ(open().content_digest(), digest);
  EXPECT_EQ(built_, 1);
  write(copy, "other");
  EXPECT_NE(open().content_digest(), digest);
  EXPECT_EQ(built_, 2);
  EXPECT_THAT(entries(), SizeIs(2)) << "the other source did not change";
}

TEST_F(CacheEntryTest, ADamagedFileIsFoundAndBuiltAgain) {
  const fs::path entry = open().path();
  struct Damage {
    const char* what;
    std::function<void()> apply;
  };
  const std::vector<Damage> damages = {
      {"zeros instead of data", [&] { write(entry / "data", std::string(5, '\0')); }},
      {"an empty file", [&] { write(entry / "data", ""); }},
      {"a missing file", [&] { fs::remove(entry / "data"); }},
      {"an empty description", [&] { write(entry / "cache.json", ""); }},
      {"a description that is not JSON", [&] { write(entry / "cache.json", "{\"format\": 1"); }},
      {"a description with other members", [&] { write(entry / "cache.json", R"({"format": 1, "kind": []})"); }},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    const int before = built_;
    damage.apply();
    EXPECT_EQ(content(), "first");
    EXPECT_EQ(built_, before + 1);
    EXPECT_THAT(entries(), ElementsAre(entry.filename().string()));
  }
}

TEST_F(CacheEntryTest, ACopiedEntryIsVerifiedByItsChecksums) {
  const fs::path entry = open().path();
  write(entry / "data", "first");  // with other times
  EXPECT_EQ(content(), "first");
  EXPECT_EQ(built_, 1);
}

TEST_F(CacheEntryTest, AnOutdatedEntryStaysWhileItIsUsed) {
  std::optional<CacheEntry> used = open();
  write(source_, "other");
  EXPECT_EQ(content(), "other");
  EXPECT_THAT(entries(), SizeIs(2));
  EXPECT_EQ(*read_file(used->path() / "data"), "first");
  used.reset();
  EXPECT_EQ(content(), "other");
  EXPECT_THAT(entries(), SizeIs(1));
  key_.version = 2;
  open();
  EXPECT_THAT(entries(), SizeIs(1)) << "the earlier version of the converter";
}

TEST_F(CacheEntryTest, FailuresLeaveNothing) {
  fails_ = true;
  EXPECT_EQ(try_open().error().message, "no data");
  EXPECT_THAT(entries(), IsEmpty());
  fails_ = false;
  while_building_ = [&](const fs::path&) { write(source_, "longer than before"); };
  const Result<CacheEntry> changed = try_open();
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, ExitCode::kTempFail);
  EXPECT_THAT(changed.error().message, HasSubstr("some.txt: changed while it was converted"));
  EXPECT_THAT(entries(), IsEmpty());
  fs::remove(source_);
  EXPECT_EQ(try_open().error().code, ExitCode::kNoInput);
  fs::create_directory(key_.directory / "killed.part");
  write(source_, "first");
  open();
  EXPECT_THAT(entries(), SizeIs(1));
}

// For example, the start of a pod with fsGroup sets the group of all files of a volume.
TEST_F(CacheEntryTest, IsBuiltAlthoughModesOfTheSourceChangeMeanwhile) {
  while_building_ = [&](const fs::path&) { fs::permissions(source_, fs::perms::owner_read); };
  EXPECT_EQ(content(), "first");
  EXPECT_EQ(content(), "first");
  EXPECT_EQ(built_, 1);
}

TEST_F(CacheEntryTest, ADirectoryThatCannotBeWrittenIsAnErrorWithRemedy) {
  key_.directory = "/proc/oarlock";
  const Result<CacheEntry> entry = try_open();
  ASSERT_FALSE(entry);
  EXPECT_EQ(entry.error().code, ExitCode::kCantCreate);
  EXPECT_THAT(entry.error().message, HasSubstr("set data.cache to a writable directory"));
}

// ---- File systems without locks ------------------------------------------------------------------------------------

TEST(FileLock, DistinguishesLockedUnsupportedAndOtherErrors) {
  const TemporaryDirectory temporary;
  const fs::path path = temporary.path() / "lock";
  const FileDescriptor file = *open_lock_file(path);
  const FileDescriptor other = *open_lock_file(path);
  EXPECT_EQ(try_lock(file.get(), LockMode::kShared, path), LockOutcome::kLocked);
  EXPECT_EQ(try_lock(other.get(), LockMode::kShared, path), LockOutcome::kLocked);
  EXPECT_EQ(try_lock(other.get(), LockMode::kExclusive, path), LockOutcome::kLockedByOther);
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP, ENOTSUP, EBADF}) {
    const test::FlockFailure failure(error);
    EXPECT_EQ(try_lock(file.get(), LockMode::kExclusive, path), LockOutcome::kUnsupported) << error;
  }
  const test::FlockFailure failure(EIO);
  const Result<LockOutcome> outcome = try_lock(file.get(), LockMode::kExclusive, path);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ExitCode::kIoErr);
  EXPECT_THAT(outcome.error().message, HasSubstr("lock: cannot be locked: "));
}

TEST_F(CacheEntryTest, IsBuiltWithoutLocksAndNotRemoved) {
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP, EBADF}) {
    const test::FlockFailure failure(error);
    key_.options = std::to_string(error);
    // Another process publishes the same entry in the meantime.
    while_building_ = [&](const fs::path&) { open(); };
    EXPECT_EQ(content(), "first");
    EXPECT_EQ(content(), "first");
  }
  EXPECT_EQ(built_, 8);
  EXPECT_THAT(entries(), SizeIs(4));
  const test::FlockFailure failure(ENOLCK);
  fs::create_directory(key_.directory / "building.part");
  write(source_, "other");
  EXPECT_EQ(content(), "other");
  EXPECT_THAT(entries(), SizeIs(6));
}

}  // namespace
}  // namespace oarlock
