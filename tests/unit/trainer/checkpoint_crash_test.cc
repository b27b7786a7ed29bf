// A crash at any time during a save, or a full disk, never destroys an older checkpoint.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/support/checkpoints.h"
#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::checkpoint_of;
using test::expect_is;
using test::in_child;
using test::must;
using test::names_in;
using test::open_store;
using testing::ElementsAre;

// Runs the body in a child process and kills it before its n-th system call. Returns false if it finished before.
bool killed_before_call(int n, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (int stops = 0; stops < 2 * n; ++stops) {  // each call stops at its begin and at its end
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return false;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return true;
}

bool may_trace() {
  const pid_t child = fork();
  if (child == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Crashes at every operation of a save that replaces a checkpoint, updates the best link, and prunes.
TEST(CheckpointStore, SurvivesKillBeforeEachSystemCall) {
  ASSERT_TRUE(may_trace()) << "this machine does not let a process trace its own child";
  const Checkpoint first = checkpoint_of(1, 10);
  const Checkpoint second = checkpoint_of(2, 10);
  const Checkpoint third = checkpoint_of(3, 10);
  bool killed = true;
  int calls = 0;
  for (; killed; ++calls) {
    const test::TemporaryDirectory directory;
    const auto store = open_store(directory.path(), {}, /*keep=*/1);
    ASSERT_TRUE(store->save(first, 1));
    ASSERT_TRUE(store->save(second, 1));
    killed = killed_before_call(calls, [&] {
      static_cast<void>(store->save(second, 1));
      static_cast<void>(store->save(third, 3));
    });
    const auto search = must(find_latest_checkpoint(directory.path()));
    EXPECT_TRUE(search.skipped.empty()) << "call " << calls << ": " << search.skipped[0].reason;
    ASSERT_GE(search.step, killed ? 2 : 3) << "call " << calls;
    expect_is(must(read_checkpoint(must(search.directory))), search.step);
    const auto best = read_checkpoint(directory.path() / "best");
    ASSERT_TRUE(best) << "call " << calls << ": " << best.error().message;
    EXPECT_THAT(best->state.step, testing::AnyOf(1, 3));

    // The next writer cleans up and continues.
    const auto next = open_store(directory.path(), {}, /*keep=*/1);
    ASSERT_TRUE(next->repair_links(search.step, search.step == 3 ? 3 : 1));
    EXPECT_EQ(link_target(directory.path(), kLastLink), checkpoint_directory_name(search.step)) << "call " << calls;
    EXPECT_EQ(link_target(directory.path(), kBestLink), checkpoint_directory_name(search.step == 3 ? 3 : 1))
        << "call " << calls;
    ASSERT_TRUE(next->save(third, 3));
    EXPECT_THAT(names_in(directory.path()), ElementsAre(".lock", "best", "fence.json", "last", "step-00000003"))
        << "call " << calls;
  }
  EXPECT_GT(calls, 100);
}

// Kills the process as soon as the file of the new checkpoint grows.
TEST(CheckpointStore, SurvivesKillDuringSave) {
  constexpr int64_t kFloats = 8 << 20;  // 2 x 32 MiB: long enough to be caught
  const test::TemporaryDirectory directory;
  ASSERT_TRUE(open_store(directory.path())->save(checkpoint_of(1)));
  const Checkpoint big = checkpoint_of(2, kFloats);
  const pid_t child = fork();
  if (child == 0) {
    setpriority(PRIO_PROCESS, 0, 19);  // so that the parent detects the file in time, even on a single busy core
    const auto store = CheckpointStore::open({.root = directory.path()}, Logger::silent());
    _exit((*store)->save(big) ? 0 : 1);
  }
  const fs::path written = directory.path() / (".writing-step-00000002-0-0-" + std::to_string(child));
  const fs::path growing = written / "model.safetensors";
  std::error_code missing;
  while (fs::file_size(growing, missing) == 0 || missing) {
    ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the save was over before it was seen";
    std::this_thread::yield();
  }
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);

  EXPECT_TRUE(fs::exists(growing)) << "killed too late";
  const auto search = must(find_latest_checkpoint(directory.path()));
  EXPECT_EQ(search.step, 1);
  EXPECT_TRUE(search.skipped.empty());
  const auto store = open_store(directory.path());
  EXPECT_THAT(names_in(directory.path()), ElementsAre(".lock", "fence.json", "last", "step-00000001"));
  ASSERT_TRUE(store->save(checkpoint_of(2)));
  expect_is(must(read_checkpoint(directory.path() / "step-00000002")), 2);
}

// Kills a writer that continuously saves, replaces and prunes at random times. Every save that it reported exists, and
// the newest checkpoint is valid.
TEST(CheckpointStore, SurvivesKillAtRandomTimes) {
  const test::TemporaryDirectory directory;
  std::vector<Checkpoint> checkpoints;
  for (int64_t step = 0; step < 64; ++step) checkpoints.push_back(checkpoint_of(step, 20000));
  unsigned seed = 1;
  for (int round = 0; round < 40; ++round) {
    std::array<int, 2> reports_pipe{};
    ASSERT_EQ(pipe2(reports_pipe.data(), O_CLOEXEC), 0);
    const auto before = must(find_latest_checkpoint(directory.path()));
    const pid_t child = fork();
    if (child == 0) {
      const auto store = CheckpointStore::open({.root = directory.path(), .keep = 2}, Logger::silent());
      // Twice the same step: the second replaces the first.
      for (int64_t i = 2 * (before.step + 1); i < 128; ++i) {
        const auto step = static_cast<uint8_t>(i / 2);
        if (!(*store)->save(checkpoints[step]) || write(reports_pipe[1], &step, 1) != 1) _exit(1);
      }
      _exit(0);
    }
    close(reports_pipe[1]);
    // The child is killed shortly after a random number of reports.
    int64_t reported = before.step;
    uint8_t step = 0;
    for (int reports = rand_r(&seed) % 4; reports > 0 && read(reports_pipe[0], &step, 1) == 1; --reports)
      reported = step;
    for (int spin = rand_r(&seed) % 20000; spin > 0; --spin) asm volatile("");
    kill(child, SIGKILL);
    while (read(reports_pipe[0], &step, 1) == 1) reported = step;
    close(reports_pipe[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << "a save failed";

    const auto search = must(find_latest_checkpoint(directory.path()));
    EXPECT_TRUE(search.skipped.empty()) << search.skipped[0].reason;
    EXPECT_GE(search.step, reported);
    EXPECT_LE(search.step, reported + 1);
    if (search.directory) expect_is(must(read_checkpoint(*search.directory)), search.step);
    if (search.step == 63) fs::remove_all(directory.path() / "step-00000063");
  }
}

// The ways in which the disk is too small for the large checkpoint.
enum class Limit { kTmpfs, kFileSize };

bool mount_small_disk(const fs::path& directory) {
  const bool namespaced = unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
  return namespaced && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=1m") == 0;
}

bool limit_file_size() {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{1 << 20, 1 << 20};
  return setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

class DiskFull : public testing::TestWithParam<Limit> {};
INSTANTIATE_TEST_SUITE_P(CheckpointStore, DiskFull, testing::Values(Limit::kTmpfs, Limit::kFileSize),
                         [](const auto& instance) {
                           return instance.param == Limit::kTmpfs ? "Tmpfs" : "FileSizeLimit";
                         });

TEST_P(DiskFull, KeepsTheOldCheckpoint) {
  const test::TemporaryDirectory directory;
  const fs::path& root = directory.path();
  const Checkpoint small = checkpoint_of(1);
  const Checkpoint big = checkpoint_of(2, 1 << 19);
  const Checkpoint next = checkpoint_of(3);
  const int code = in_child([&] {
    // If mounting is not permitted, a limit on the file size replaces the small disk.
    if (!(GetParam() == Limit::kTmpfs && mount_small_disk(root)) && !limit_file_size()) return 100;
    const auto store = CheckpointStore::open({.root = root}, Logger::silent());
    if (!store || !(*store)->save(small)) return 1;
    const auto full = (*store)->save(big);
    if (full) return 2;
    std::puts(full.error().message.c_str());
    std::fflush(stdout);
    if (full.error().code != ExitCode::kIoErr) return 3;
    if (full.error().message.find("model.safetensors: cannot be written") == std::string::npos) return 4;
    const auto search = find_latest_checkpoint(root);
    if (!search || search->step != 1 || !search->skipped.empty()) return 5;
    if (names_in(root) != std::vector<std::string>{".lock", "fence.json", "last", "step-00000001"}) return 6;
    if (!(*store)->save(next)) return 7;  // the failed save gave its space back
    return must(find_latest_checkpoint(root)).step == 3 ? 0 : 8;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace oarlock
