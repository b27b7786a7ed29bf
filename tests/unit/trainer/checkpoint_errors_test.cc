// Each error of a disk, a file server or a limit, in each operation on a checkpoint directory, at a resume and at a
// save. Only damage that is proven is skipped: anything else ends with its exit code and one line with the path, the
// error and a remedy; no checkpoint is skipped, replaced, renamed or removed meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <system_error>

#include "common/files.h"
#include "ddp/digest_file.h"
#include "tests/support/checkpoints.h"
#include "tests/support/system_calls.h"
#include "tests/support/temporary_directory.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/store.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::checkpoint_of;
using test::must;
using test::open_store;
using test::SystemCall;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kNewest[] = "step-00000020";
constexpr char kReached[] = "reached";
constexpr int kErrors[] = {EIO, ESTALE, EACCES, EMFILE, ENOSPC};

std::string text_of(int error) { return std::generic_category().message(error); }

bool is_open(const SystemCall& call) { return call.name == "openat" || call.name == "open"; }

// A group of system calls that fail.
struct Operation {
  std::string name;
  std::string file;  // relative to the root
  std::function<bool(const SystemCall&)> is_of;
};

std::vector<Operation> operations() {
  std::vector<Operation> out;
  const auto add = [&](const std::string& name, const std::string& file, std::function<bool(const SystemCall&)> is_of) {
    out.push_back({name, file, std::move(is_of)});
  };
  const std::pair<const char*, std::string> files[] = {
      {"manifest", std::string(kNewest) + "/manifest.json"},
      {"state", std::string(kNewest) + "/state.json"},
      {"tensors", std::string(kNewest) + "/model.safetensors"},
      {"high-water", kReached},
      {"fence", kFenceFile},
  };
  for (const auto& [name, file] : files) {
    add(std::string(name) + " open", file, [](const SystemCall& call) { return is_open(call) && !call.creates; });
    add(std::string(name) + " read", file, [](const SystemCall& call) { return call.is_read(); });
    add(std::string(name) + " every call", file, [](const SystemCall& call) { return !call.creates; });
  }
  add("root open", "", [](const SystemCall& call) { return is_open(call); });
  add("root list", "", [](const SystemCall& call) { return call.name == "getdents64"; });
  add("checkpoint every call", kNewest, [](const SystemCall&) { return true; });
  return out;
}

// The result of a piece of code in a child process whose system calls failed.
struct Outcome {
  int code = 0;         // an ExitCode
  std::string message;  // of the error, or what was found
  int failed_calls = 0;
};

// A root with checkpoints of the steps 10 and 20 and a high-water mark of 25.
class CheckpointErrors : public testing::Test {
 protected:
  CheckpointErrors() {
    for (const int64_t step : {10, 20}) must(open_store(root())->save(checkpoint_of(step, 4)));
    HighWater(root()).raise(25);
  }

  const fs::path& root() const { return root_.path(); }

  // Names with digests, or with targets of links.
  std::map<std::string, std::string> content() const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      const std::string name = entry.path().lexically_relative(root()).string();
      if (entry.is_symlink()) {
        out[name] = fs::read_symlink(entry.path()).string();
      } else {
        out[name] = entry.is_regular_file() ? must(digest_of(entry.path())).xxh3_128 : "";
      }
    }
    return out;
  }

  // Names that were added, removed or have another content.
  std::vector<std::string> changed_since(const std::map<std::string, std::string>& before) const {
    const auto after = content();
    std::vector<std::string> out;
    for (const auto& [name, digest] : before) {
      if (!after.contains(name) || after.at(name) != digest) out.push_back(name);
    }
    for (const auto& [name, digest] : after) {
      if (!before.contains(name)) out.push_back(name);
    }
    return out;
  }

  // Runs `body` in a child process and returns its exit code and its result, or the message of its error.
  Outcome run(const std::function<Result<std::string>()>& body, const test::CallDecision& decide) const {
    Outcome out;
    const fs::path message_file = other_.path() / "message";
    fs::remove(message_file);
    out.code = test::with_system_calls(
        [&] {
          const Result<std::string> result = body();
          std::ofstream(message_file) << (result ? *result : result.error().message);
          return result ? 0 : to_int(result.error().code);
        },
        [&](const SystemCall& call) {
          const int error = decide(call);
          if (error != 0) ++out.failed_calls;
          return error;
        });
    out.message = must(read_file(message_file));
    return out;
  }

  std::string path_of(const Operation& operation) const {
    return operation.file.empty() ? root().string() : (root() / operation.file).string();
  }

  test::CallDecision failing(const Operation& operation, int error, bool once) const {
    const std::string path = path_of(operation);
    return [=, done = std::make_shared<bool>(false)](const SystemCall& call) {
      const bool is_of = call.path == path || (operation.file == kNewest && call.path.starts_with(path + "/"));
      if (!is_of || !operation.is_of(call) || (once && *done)) return 0;
      *done = true;
      return error;
    };
  }

  test::TemporaryDirectory root_;
  test::TemporaryDirectory other_;
};

// Resumes as the trainer does: opens the store, finds and reads the newest checkpoint, and reads and raises the mark.
Result<std::string> resume(const fs::path& root) {
  const auto store = CheckpointStore::open({.root = root}, Logger::silent());
  if (!store) return tl::make_unexpected(store.error());
  const auto latest = read_latest_checkpoint(root);
  if (!latest) return tl::make_unexpected(latest.error());
  HighWater(root).raise(latest->search.step + 1);
  return "step " + std::to_string(latest->search.step) + ", skipped " + std::to_string(latest->search.skipped.size());
}

TEST_F(CheckpointErrors, ResumeStopsUnlessDamageIsProven) {
  const auto before = content();
  for (const Operation& operation : operations()) {
    for (const int error : kErrors) {
      for (const bool once : {true, false}) {
        SCOPED_TRACE(operation.name + ": " + text_of(error) + (once ? " once" : " always"));
        const Outcome outcome = run([&] { return resume(root()); }, failing(operation, error, once));
        EXPECT_GT(outcome.failed_calls, 0);
        EXPECT_THAT(changed_since(before), IsEmpty());
        if (operation.file == kReached) {  // it only counts lost steps
          EXPECT_EQ(outcome.message, "step 20, skipped 0");
          continue;
        }
        if (once && outcome.message == "step 20, skipped 0") continue;  // such as the size, which reading checks again
        EXPECT_EQ(outcome.code, to_int(error == EACCES ? ExitCode::kNoPermission : ExitCode::kTempFail))
            << outcome.message;
        EXPECT_THAT(outcome.message,
                    AllOf(HasSubstr(path_of(operation)), HasSubstr(text_of(error)),
                          AnyOf(HasSubstr("a restart reads it again"), HasSubstr("make it readable"))));
      }
    }
  }
}

// A save of the step of a checkpoint that another process wrote.
TEST_F(CheckpointErrors, SaveNeverReplacesAnUnreadableCheckpoint) {
  const auto before = content();
  for (const Operation& operation : operations()) {
    const bool is_of_newest = operation.file.starts_with(kNewest);
    if (!is_of_newest && operation.file != kFenceFile) continue;
    for (const int error : kErrors) {
      SCOPED_TRACE(operation.name + ": " + text_of(error));
      const auto store = open_store(root());
      const Outcome outcome = run(
          [&] {
            return store->save(checkpoint_of(20, 4)).map([](const SavedCheckpoint&) { return std::string("saved"); });
          },
          failing(operation, error, /*once=*/false));
      EXPECT_GT(outcome.failed_calls, 0);
      EXPECT_THAT(changed_since(before), IsEmpty());
      EXPECT_EQ(outcome.code, to_int(error == EACCES ? ExitCode::kNoPermission : ExitCode::kIoErr)) << outcome.message;
      EXPECT_THAT(outcome.message, AllOf(HasSubstr(path_of(operation)), HasSubstr(text_of(error)),
                                         AnyOf(HasSubstr("a restart reads it again"), HasSubstr("make it readable"))));
      if (is_of_newest) {
        EXPECT_THAT(outcome.message, HasSubstr("not replaced: "));
      }
    }
  }
}

// Each system call of a save fails, one after the other.
TEST_F(CheckpointErrors, FailedSaveKeepsOlderCheckpoints) {
  const auto before = content();
  const fs::path pristine = other_.path() / "pristine";
  constexpr auto kCopy = fs::copy_options::recursive | fs::copy_options::copy_symlinks;
  fs::copy(root(), pristine, kCopy);
  for (const int error : kErrors) {
    size_t calls = 0;
    for (size_t at = 0;; ++at) {
      const auto store = open_store(root(), {}, /*keep=*/2);
      size_t seen = 0;
      SystemCall failed;
      const Outcome outcome = run(
          [&] {
            return store->save(checkpoint_of(30, 4)).map([](const SavedCheckpoint&) { return std::string("saved"); });
          },
          [&](const SystemCall& call) {
            const bool is_below = call.path == root() || call.path.starts_with(root().string() + "/");
            if (!is_below || seen++ != at) return 0;
            failed = call;
            return error;
          });
      if (failed.name.empty()) break;
      ++calls;
      SCOPED_TRACE(failed.name + " " + failed.path + ": " + text_of(error));
      const CheckpointSearch found = must(find_latest_checkpoint(root()));
      EXPECT_THAT(found.skipped, IsEmpty());
      EXPECT_GE(found.step, outcome.message == "saved" ? 30 : 20);
      std::vector<std::string> lost = changed_since(before);
      std::erase_if(lost, [&](const std::string& name) {
        return !name.starts_with("step-") || name.starts_with("step-00000030") ||
               (outcome.message == "saved" && name.starts_with("step-00000010"));
      });
      EXPECT_THAT(lost, IsEmpty());
      if (outcome.message != "saved") {
        const bool is_unread_fence = failed.path == root() / kFenceFile;
        if (is_unread_fence) {
          EXPECT_EQ(outcome.code, to_int(error == EACCES ? ExitCode::kNoPermission : ExitCode::kIoErr));
        } else {
          EXPECT_THAT(outcome.code, AnyOf(to_int(ExitCode::kIoErr), to_int(ExitCode::kCantCreate)));
        }
        EXPECT_THAT(outcome.message,
                    AllOf(HasSubstr(root().string()), HasSubstr(text_of(error)),
                          AnyOf(HasSubstr("make checkpoint.dir writable"), HasSubstr("a restart reads it again"),
                                HasSubstr("make it readable"))));
      }
      fs::remove_all(root());
      fs::copy(pristine, root(), kCopy);
    }
    EXPECT_GT(calls, 50U);
  }
}

}  // namespace
}  // namespace oarlock
