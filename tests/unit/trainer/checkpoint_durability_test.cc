// Durability of checkpoints after a power failure: the order of writes, fsyncs and renames. And saves during which
// another attempt claims the root.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <map>
#include <set>
#include <string>

#include "common/files.h"
#include "tests/support/checkpoints.h"
#include "tests/support/model/fence_model.h"
#include "tests/support/system_calls.h"
#include "tests/support/temporary_directory.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/store.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::checkpoint_of;
using test::expect_is;
using test::must;
using test::open_store;
using test::position_of;
using test::SystemCall;

constexpr char kSaved[] = "step-00000002";

// Records the system calls of a save of step 2 into a root with step 1, which it removes.
class SaveCalls : public testing::Test {
 protected:
  SaveCalls() {
    must(open_store(root())->save(checkpoint_of(1, 4), 1));
    const auto store = open_store(root(), {}, /*keep=*/1);
    calls_ = test::system_calls(root(), [&] { return store->save(checkpoint_of(2, 4), 2) ? 0 : 1; });
    published_ = position_of(
        calls_, [&](const SystemCall& call) { return call.is_rename() && call.target == (root() / kSaved).string(); });
  }

  const fs::path& root() const { return directory_.path(); }
  size_t find(const std::function<bool(const SystemCall&)>& condition, size_t from = 0) const {
    return position_of(calls_, condition, from);
  }
  size_t sync_of(const fs::path& path, size_t from) const {
    return find([&](const SystemCall& call) { return call.is_sync() && call.path == path.string(); }, from);
  }

  test::TemporaryDirectory directory_;
  std::vector<SystemCall> calls_;
  size_t published_ = 0;
};

TEST_F(SaveCalls, SyncsFilesBeforePublishing) {
  ASSERT_LT(published_, calls_.size());
  const fs::path written = calls_[published_].path;
  std::set<std::string> files;
  for (const SystemCall& call : calls_) {
    if (call.creates && fs::path(call.path).parent_path() == written) files.insert(call.path);
  }
  ASSERT_EQ(files.size(), 5U);
  for (const std::string& file : files) {
    size_t last_write = 0;
    for (size_t at = 0; at < published_; ++at) {
      if (calls_[at].is_write() && calls_[at].path == file) last_write = at;
    }
    EXPECT_GT(last_write, 0U) << file;
    EXPECT_LT(sync_of(file, last_write), published_) << file << " is not synced after it was written";
  }
}

TEST_F(SaveCalls, WritesManifestLastAndSyncsDirectory) {
  ASSERT_LT(published_, calls_.size());
  const fs::path written = calls_[published_].path;
  const size_t manifest =
      find([&](const SystemCall& call) { return call.creates && call.path == (written / kManifestFile).string(); });
  ASSERT_LT(manifest, published_);
  for (size_t at = 0; at < manifest; ++at) {
    const fs::path file = calls_[at].path;
    if (!calls_[at].creates || file.parent_path() != written) continue;
    EXPECT_LT(sync_of(file, at), manifest) << file << " is not durable before the manifest that names it";
  }
  EXPECT_LT(sync_of(written, manifest), published_) << "the directory's entries are not synced before its rename";
}

// update_links() syncs the root as well, but ignores failures.
TEST_F(SaveCalls, SyncsPublishingRenameBeforeLinks) {
  ASSERT_LT(published_, calls_.size());
  const size_t next_rename =
      find([&](const SystemCall& call) { return call.is_rename() && fs::path(call.target).parent_path() == root(); },
           published_ + 1);
  ASSERT_LT(next_rename, calls_.size());
  EXPECT_EQ(calls_[next_rename].target, (root() / "last").string());
  EXPECT_LT(sync_of(root(), published_), next_rename);
}

// Otherwise "best" may point to a removed checkpoint after a power failure.
TEST_F(SaveCalls, SyncsLinksBeforePruning) {
  for (const char* name : {"last", "best"}) {
    const size_t renamed =
        find([&](const SystemCall& call) { return call.is_rename() && call.target == (root() / name).string(); });
    ASSERT_LT(renamed, calls_.size()) << name;
    const size_t removed = find(
        [&](const SystemCall& call) { return call.is_rename() && call.path == (root() / "step-00000001").string(); });
    EXPECT_LT(sync_of(root(), renamed), removed) << name;
  }
}

TEST(FailedSync, OfPublishingRenameFailsSave) {
  const test::TemporaryDirectory directory;
  const auto store = open_store(directory.path());
  bool is_published = false;
  bool has_failed = false;
  const int code = test::with_system_calls(
      [&] {
        const auto saved = store->save(checkpoint_of(2, 4));
        return saved ? 0 : to_int(saved.error().code);
      },
      [&](const SystemCall& call) {
        if (is_published && !has_failed && call.is_sync() && call.path == directory.path()) {
          has_failed = true;
          return EIO;
        }
        is_published = is_published || (call.is_rename() && call.target == (directory.path() / kSaved).string());
        return 0;
      });
  EXPECT_TRUE(has_failed);
  EXPECT_EQ(code, to_int(ExitCode::kIoErr));
}

TEST(FenceDuringASave, SyncsFenceBeforeFirstSave) {
  const test::TemporaryDirectory directory;
  const auto calls = test::system_calls(directory.path(), [&] {
    return CheckpointStore::open({.root = directory.path(), .owner = {.uid = "a", .attempt = 1}}, Logger::silent()) ? 0
                                                                                                                    : 1;
  });
  const size_t renamed = position_of(calls, [&](const SystemCall& call) {
    return call.is_rename() && call.target == (directory.path() / "fence.json").string();
  });
  ASSERT_LT(renamed, calls.size());
  EXPECT_LT(
      position_of(calls, [&](const SystemCall& call) { return call.is_sync() && call.path == calls[renamed].path; }),
      renamed);
  EXPECT_LT(
      position_of(
          calls, [&](const SystemCall& call) { return call.is_sync() && call.path == directory.path(); }, renamed),
      calls.size());
}

enum class Takeover { kFenceOnly, kNewWriter };

bool is_locked(const fs::path& root) {
  const FileDescriptor lock(::open((root / ".lock").c_str(), O_RDWR | O_CLOEXEC));
  return ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
}

// Attempt 1 claims the root while attempt 0 is stopped before its n-th system call. Returns the result of the save of
// attempt 0, or nothing if it makes fewer calls.
std::optional<int> save_with_takeover(const fs::path& root, int n, Takeover how, bool& published_before) {
  const CheckpointOwner old_owner{.uid = "a", .attempt = 0};
  const CheckpointOwner new_owner{.uid = "a", .attempt = 1};
  const auto store = open_store(root, old_owner);
  must(store->save(checkpoint_of(1, 4)));
  int seen = 0;
  bool taken = false;
  const int code = test::with_system_calls(
      [&] {
        const auto saved = store->save(checkpoint_of(2, 4));
        return saved ? 0 : to_int(saved.error().code);
      },
      [&](const SystemCall& call) {
        if (taken || !call.path.starts_with(root.string()) || seen++ < n) return 0;
        if (is_locked(root)) return 0;  // the new writer waits for the lock: it comes at one of the next calls
        taken = true;
        published_before = fs::exists(root / kSaved);
        if (how == Takeover::kNewWriter) {
          open_store(root, new_owner);
        } else {
          EXPECT_TRUE(claim_fence(root, new_owner));
        }
        return 0;
      });
  return taken ? std::optional(code) : std::nullopt;
}

TEST(FenceDuringASave, DoesNotPublishAfterTakeover) {
  for (const Takeover how : {Takeover::kFenceOnly, Takeover::kNewWriter}) {
    int refused = 0;
    for (int n = 0;; ++n) {
      const test::TemporaryDirectory directory;
      bool published_before = false;
      const auto code = save_with_takeover(directory.path(), n, how, published_before);
      if (!code) break;
      SCOPED_TRACE("call " + std::to_string(n));
      if (published_before) {  // durable or not, it was attempt 0's right
        EXPECT_EQ(*code, 0);
        EXPECT_EQ(must(find_latest_checkpoint(directory.path())).step, 2);
        continue;
      }
      ++refused;
      EXPECT_EQ(*code, to_int(ExitCode::kTempFail));
      EXPECT_FALSE(fs::exists(directory.path() / kSaved));
      const auto search = must(find_latest_checkpoint(directory.path()));
      EXPECT_EQ(search.step, 1);
      EXPECT_TRUE(search.skipped.empty());
      expect_is(must(read_checkpoint(must(search.directory))), 1);
    }
    EXPECT_GT(refused, 15);
  }
}

// The names of a root, with the targets of links and without those that only the old writer uses.
std::map<std::string, std::string> public_names(const fs::path& root) {
  std::map<std::string, std::string> out;
  for (const std::string& name : test::names_in(root)) {
    if (!name.starts_with('.')) out[name] = link_target(root, name).value_or("");
  }
  return out;
}

// Generation 1 claims the root, without the lock, whenever a save of generation 0 is about to check the fence. The save
// has the lock, but its successor does not wait longer than a few seconds. The save then changes no further name.
TEST(FenceDuringASave, ChangesNoNameAfterTheFailedCheck) {
  const CheckpointOwner old_owner{.uid = "a", .attempt = 0, .generation = 0};
  const CheckpointOwner new_owner{.uid = "a", .attempt = 0, .generation = 1};
  // For the claim, and before each of the renames: of the checkpoint, "last", "best", the old checkpoint.
  constexpr int kChecks = 5;
  for (int n = 0; n < kChecks; ++n) {
    SCOPED_TRACE("check " + std::to_string(n));
    const test::TemporaryDirectory directory;
    const fs::path& root = directory.path();
    const auto store = open_store(root, old_owner, /*keep=*/1);
    must(store->save(checkpoint_of(1, 4), 1));
    std::map<std::string, std::string> before;
    int checks = 0;
    const int code = test::with_system_calls(
        [&] {
          const auto saved = store->save(checkpoint_of(2, 4), 2);
          return saved ? 0 : to_int(saved.error().code);
        },
        [&](const SystemCall& call) {
          const bool is_check = call.name == "openat" && call.path == (root / kFenceFile).string();
          if (!is_check || checks++ != n) return 0;
          EXPECT_TRUE(claim_fence(root, new_owner));
          before = public_names(root);
          return 0;
        });
    EXPECT_GT(checks, n);
    // The old checkpoint remains if the last check fails, which is not an error.
    EXPECT_EQ(code, n == kChecks - 1 ? 0 : to_int(ExitCode::kTempFail));
    EXPECT_EQ(public_names(root), before);
  }
}

// ---- the model -----------------------------------------------------------------------------------------------------

TEST(FenceModel, LaterGenerationsAreNotOverwritten) {
  const test::FenceModelResult locked = test::FenceModel({}).check();
  EXPECT_EQ(locked.violation, "");
  EXPECT_GT(locked.states, 50U);
  // Without the lock, a process that pauses between its last check and the change of a name changes this name only.
  const test::FenceModelResult unlocked = test::FenceModel({.locks_expire = true}).check();
  EXPECT_EQ(unlocked.violation, "");
  EXPECT_GT(unlocked.states, locked.states);
}

TEST(FenceModel, DetectsPlantedBugs) {
  using test::FenceBug;
  EXPECT_THAT(test::FenceModel({.bug = FenceBug::kNoGeneration}).check().violation,
              testing::HasSubstr("changes 1 names after a later one has claimed"));
  EXPECT_THAT(test::FenceModel({.bug = FenceBug::kUncheckedLinks}).check().violation,
              testing::HasSubstr("changes 1 names after a later one has claimed"));
  EXPECT_THAT(test::FenceModel({.locks_expire = true, .bug = FenceBug::kCheckedOnce}).check().violation,
              testing::HasSubstr("changes 2 names after a later one has claimed"));
}

}  // namespace
}  // namespace oarlock
