// Checkpoints: what is saved comes back, damage is noticed, crashes and full disks never cost an older checkpoint, and
// only the newest attempt may write.
#include "trainer/checkpoint/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "common/files.h"
#include "tests/support/temporary_folder.h"
#include "trainer/checkpoint/store.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A checkpoint whose every value tells its step.
Checkpoint checkpoint_of(int64_t step, int64_t floats = 1000) {
  Checkpoint checkpoint;
  checkpoint.state.step = step;
  checkpoint.state.epoch = step / 10;
  checkpoint.state.epoch_samples = step * 64;
  checkpoint.state.world_size = 2;
  checkpoint.state.extra = {{"learning_rate", 0.5}, {"note", "käse"}};
  checkpoint.tensors[kModelTensors] = {{"conv1.weight", at::full({floats}, static_cast<double>(step))},
                                       {"conv1.bias", at::full({3}, static_cast<double>(step), at::kDouble)}};
  checkpoint.tensors[kOptimizerTensors] = {{"conv1.weight.exp_avg", at::full({floats}, static_cast<double>(-step))}};
  checkpoint.tensors[kRngTensors] = {{"rank0.cpu", at::arange(256).to(at::kByte)}};
  return checkpoint;
}

void expect_is(const Checkpoint& checkpoint, int64_t step) {
  EXPECT_EQ(checkpoint.state.step, step);
  const at::Tensor weight = checkpoint.tensors.at(kModelTensors).at("conv1.weight");
  EXPECT_TRUE(at::equal(weight, at::full(weight.sizes(), static_cast<double>(step))));
  const at::Tensor average = checkpoint.tensors.at(kOptimizerTensors).at("conv1.weight.exp_avg");
  EXPECT_TRUE(at::equal(average, at::full(average.sizes(), static_cast<double>(-step))));
}

std::unique_ptr<CheckpointStore> open_store(const fs::path& root, CheckpointOwner owner = {}, int keep = 0) {
  auto store = CheckpointStore::open({.root = root, .owner = std::move(owner), .keep = keep}, Logger::silent());
  EXPECT_TRUE(store) << store.error().message;
  return store ? std::move(*store) : nullptr;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void flip_byte(const fs::path& path, size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  ASSERT_TRUE(file.good());
}

// Runs the body in a child process; gives its exit code, or -signal.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Checkpoint, ComesBackAsItWas) {
  const test::TemporaryFolder folder;
  const auto store = open_store(folder.path() / "new" / "root", {.uid = "job-1", .attempt = 4});
  const Checkpoint saved = checkpoint_of(1234);
  const auto result = store->save(saved);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->folder, folder.path() / "new" / "root" / "step-00001234");
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(result->folder)) bytes += static_cast<int64_t>(entry.file_size());
  EXPECT_EQ(result->bytes, bytes);
  EXPECT_THAT(names_in(result->folder), ElementsAre("manifest.json", "model.safetensors", "optimizer.safetensors",
                                                    "rng.safetensors", "state.json"));

  const auto read = read_checkpoint(result->folder);
  ASSERT_TRUE(read) << read.error().message;
  expect_is(*read, 1234);
  EXPECT_EQ(read->state.epoch, 123);
  EXPECT_EQ(read->state.epoch_samples, 1234 * 64);
  EXPECT_EQ(read->state.world_size, 2);
  EXPECT_EQ(read->state.owner, (CheckpointOwner{.uid = "job-1", .attempt = 4}));
  EXPECT_EQ(read->state.extra, saved.state.extra);
  EXPECT_TRUE(at::equal(read->tensors.at(kRngTensors).at("rank0.cpu"), at::arange(256).to(at::kByte)));
}

TEST(Checkpoint, CopiesShareNothing) {
  const at::Tensor original = at::arange(6).reshape({2, 3});
  const TensorMap copies = copy_to_cpu({{"t", original.t()}});
  EXPECT_TRUE(at::equal(copies.at("t"), original.t()));
  EXPECT_TRUE(copies.at("t").is_contiguous());
  original.zero_();
  EXPECT_EQ(copies.at("t").sum().item<int64_t>(), 15);
}

TEST(Checkpoint, EveryFlippedByteIsNoticed) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(open_store(folder.path())->save(checkpoint_of(7, /*floats=*/4)));
  const fs::path step = folder.path() / "step-00000007";
  for (const std::string& name : names_in(step)) {
    const std::string good = *read_file(step / name);
    for (size_t at = 0; at < good.size(); ++at) {
      // White space in the manifest carries nothing, and may become other white space.
      if (name == kManifestFile && std::isspace(static_cast<unsigned char>(good[at])) != 0) continue;
      flip_byte(step / name, at);
      const auto valid = verify_checkpoint(step);
      ASSERT_FALSE(valid) << name << " byte " << at;
      EXPECT_THAT(valid.error().message, HasSubstr(step.string()));
      EXPECT_FALSE(read_checkpoint(step));
      flip_byte(step / name, at);
    }
  }
  EXPECT_TRUE(verify_checkpoint(step));
}

TEST(Checkpoint, MissingAndShortFilesAreNamed) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(open_store(folder.path())->save(checkpoint_of(7)));
  const fs::path step = folder.path() / "step-00000007";
  for (const std::string& name : names_in(step)) {
    const std::string good = *read_file(step / name);
    fs::resize_file(step / name, good.size() - 1);
    if (name != kManifestFile) {  // the manifest's last byte is a line end
      EXPECT_THAT(verify_checkpoint(step).error().message,
                  HasSubstr(name + ": expected " + std::to_string(good.size()) + " bytes, found"));
    }
    fs::remove(step / name);
    EXPECT_THAT(verify_checkpoint(step).error().message, HasSubstr(name));
    std::ofstream(step / name, std::ios::binary) << good;
  }
  EXPECT_TRUE(verify_checkpoint(step));
}

TEST(CheckpointSearch, NewestValidAndWhyOthersAreNot) {
  const test::TemporaryFolder folder;
  EXPECT_FALSE(find_latest_checkpoint(folder.path() / "none")->folder);
  EXPECT_FALSE(find_latest_checkpoint(folder.path())->folder);
  const auto store = open_store(folder.path());
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(store->save(checkpoint_of(step)));
  EXPECT_EQ(find_latest_checkpoint(folder.path())->step, 40);

  flip_byte(folder.path() / "step-00000040" / "model.safetensors", 4000);
  fs::remove(folder.path() / "step-00000030" / kManifestFile);  // as if it had not been written to its end
  fs::copy(folder.path() / "step-00000010", folder.path() / "step-00000050");
  fs::create_directory(folder.path() / "step-60");  // not a name of ours
  fs::create_directory(folder.path() / ".writing-step-00000070-0-1");
  const auto search = find_latest_checkpoint(folder.path());
  ASSERT_TRUE(search) << search.error().message;
  EXPECT_EQ(search->step, 20);
  EXPECT_EQ(search->folder, folder.path() / "step-00000020");
  ASSERT_EQ(search->skipped.size(), 3U);
  EXPECT_THAT(search->skipped[0].reason, HasSubstr("step-00000050: it holds step 10"));
  EXPECT_THAT(search->skipped[1].reason, HasSubstr("step-00000040/model.safetensors: expected checksum"));
  EXPECT_THAT(search->skipped[2].reason, HasSubstr("step-00000030: it has no manifest.json"));
}

TEST(CheckpointStore, KeepsTheNewest) {
  const test::TemporaryFolder folder;
  const auto store = open_store(folder.path(), {}, /*keep=*/2);
  for (const int64_t step : {1, 2, 3, 4}) ASSERT_TRUE(store->save(checkpoint_of(step)));
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".lock", "fence.json", "step-00000003", "step-00000004"));
}

// After step 4 was found damaged the run goes on from 3: the checkpoints that it writes now must not lose to step 4.
TEST(CheckpointStore, DamagedNewerStepsDoNotPushOutGoodOnes) {
  const test::TemporaryFolder folder;
  const auto store = open_store(folder.path(), {}, /*keep=*/1);
  ASSERT_TRUE(store->save(checkpoint_of(40)));
  flip_byte(folder.path() / "step-00000040" / "state.json", 1);
  ASSERT_TRUE(store->save(checkpoint_of(31)));
  ASSERT_TRUE(store->save(checkpoint_of(32)));
  EXPECT_EQ(find_latest_checkpoint(folder.path())->step, 32);
  // The run reaches step 40 again and replaces it.
  ASSERT_TRUE(store->save(checkpoint_of(40)));
  EXPECT_EQ(find_latest_checkpoint(folder.path())->step, 40);
  EXPECT_TRUE(find_latest_checkpoint(folder.path())->skipped.empty());
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".lock", "fence.json", "step-00000040"));
}

TEST(CheckpointStore, LeftoversGoWithTheNextWriter) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(open_store(folder.path())->save(checkpoint_of(1)));
  // What a crash may leave: a half-written folder, a half-removed one, a fence being written; and on file systems
  // without exchange, a replaced checkpoint whose successor has not got its name.
  fs::create_directory(folder.path() / ".writing-step-00000002-0-77");
  std::ofstream(folder.path() / ".writing-step-00000002-0-77" / "model.safetensors") << "half";
  fs::create_directory(folder.path() / ".removed-step-00000000");
  std::ofstream(folder.path() / "fence.json.tmp-77") << "{";
  fs::rename(folder.path() / "step-00000001", folder.path() / ".replaced-step-00000001");
  const auto store = open_store(folder.path());
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".lock", "fence.json", "step-00000001"));
  EXPECT_EQ(find_latest_checkpoint(folder.path())->step, 1);
}

TEST(CheckpointStore, OlderAttemptsAreFencedOff) {
  const test::TemporaryFolder folder;
  const auto first = open_store(folder.path(), {.uid = "a", .attempt = 0});
  ASSERT_TRUE(first->save(checkpoint_of(1)));
  EXPECT_TRUE(first->check_fence());
  const auto second = open_store(folder.path(), {.uid = "a", .attempt = 1});

  const auto refused = first->save(checkpoint_of(2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::kTempFail);
  EXPECT_THAT(refused.error().message,
              HasSubstr("attempt 0 of this job may not write here any more: attempt 1 has taken over"));
  EXPECT_FALSE(first->check_fence());
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".lock", "fence.json", "step-00000001"));
  const auto reopened =
      CheckpointStore::open({.root = folder.path(), .owner = {.uid = "a", .attempt = 0}}, Logger::silent());
  ASSERT_FALSE(reopened);
  EXPECT_EQ(reopened.error().code, ExitCode::kTempFail);

  EXPECT_TRUE(second->save(checkpoint_of(2)));
  EXPECT_TRUE(open_store(folder.path(), {.uid = "a", .attempt = 1})->save(checkpoint_of(3)))
      << "the same attempt again";
}

TEST(CheckpointStore, AnotherJobTakesOverForGood) {
  const test::TemporaryFolder folder;
  const auto old_job = open_store(folder.path(), {.uid = "old", .attempt = 9});
  const auto new_job = open_store(folder.path(), {.uid = "new", .attempt = 0});
  const auto refused = old_job->save(checkpoint_of(1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::kTempFail);
  EXPECT_THAT(refused.error().message, HasSubstr("job \"new\" has taken over"));
  EXPECT_TRUE(new_job->save(checkpoint_of(1)));
}

TEST(CheckpointStore, RunsWithoutAUidTakeTurns) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(open_store(folder.path())->save(checkpoint_of(1)));
  ASSERT_TRUE(open_store(folder.path(), {.uid = "a"})->save(checkpoint_of(2)));
  ASSERT_TRUE(open_store(folder.path())->save(checkpoint_of(3)));
}

TEST(CheckpointStore, ADamagedFenceIsNotOverwritten) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "fence.json") << "{\"uid\": \"a\"}";
  const auto store = CheckpointStore::open({.root = folder.path()}, Logger::silent());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ExitCode::kDataErr);
  EXPECT_THAT(store.error().message, HasSubstr("fence.json: not a fence file; remove it"));
}

TEST(CheckpointStore, AFolderThatWasRemovedIsMadeAgain) {
  const test::TemporaryFolder folder;
  const auto store = open_store(folder.path() / "root");
  fs::remove_all(folder.path() / "root");
  EXPECT_TRUE(store->save(checkpoint_of(1)));
}

TEST(CheckpointStore, UnwritableFolders) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "";
  const auto under_a_file = CheckpointStore::open({.root = folder.path() / "file" / "root"}, Logger::silent());
  ASSERT_FALSE(under_a_file);
  EXPECT_EQ(under_a_file.error().code, ExitCode::kCantCreate);
  EXPECT_THAT(under_a_file.error().message, HasSubstr("file/root"));

  ASSERT_TRUE(open_store(folder.path() / "root")->save(checkpoint_of(1)));
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(folder.path() / "root", fs::perms(0555));
  const int code = in_child([&] {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 200;
    const auto store = CheckpointStore::open({.root = folder.path() / "root"}, Logger::silent());
    return store ? 0 : to_int(store.error().code);
  });
  EXPECT_EQ(code, to_int(ExitCode::kCantCreate));
  fs::permissions(folder.path() / "root", fs::perms(0755));
  EXPECT_EQ(find_latest_checkpoint(folder.path() / "root")->step, 1);
}

// kill -9 as soon as the save has begun to write: at that moment the file of the new checkpoint grows.
TEST(CheckpointStore, KilledInTheMiddleOfASave) {
  constexpr int64_t kFloats = 8 << 20;  // 2 x 32 MiB: long enough to be caught
  const test::TemporaryFolder folder;
  ASSERT_TRUE(open_store(folder.path())->save(checkpoint_of(1)));
  const Checkpoint big = checkpoint_of(2, kFloats);
  const pid_t child = fork();
  if (child == 0) {
    const auto store = CheckpointStore::open({.root = folder.path()}, Logger::silent());
    _exit((*store)->save(big) ? 0 : 1);
  }
  const fs::path growing = folder.path() / (".writing-step-00000002-0-" + std::to_string(child)) / "model.safetensors";
  std::error_code missing;
  while (fs::file_size(growing, missing) == 0 || missing) {
    ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the save was over before it was seen";
    std::this_thread::yield();
  }
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);

  EXPECT_TRUE(fs::exists(growing)) << "killed too late";
  auto search = find_latest_checkpoint(folder.path());
  EXPECT_EQ(search->step, 1);
  EXPECT_TRUE(search->skipped.empty());
  const auto store = open_store(folder.path());
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".lock", "fence.json", "step-00000001"));
  ASSERT_TRUE(store->save(checkpoint_of(2)));
  expect_is(*read_checkpoint(folder.path() / "step-00000002"), 2);
}

// kill -9 at random instants of a writer that saves, replaces and prunes without pause: whatever it says it saved is
// there, and the newest one is whole.
TEST(CheckpointStore, KilledAtRandomInstants) {
  const test::TemporaryFolder folder;
  std::vector<Checkpoint> checkpoints;
  for (int64_t step = 0; step < 64; ++step) checkpoints.push_back(checkpoint_of(step, 20000));
  unsigned seed = 1;
  for (int round = 0; round < 40; ++round) {
    std::array<int, 2> said{};
    ASSERT_EQ(pipe2(said.data(), O_CLOEXEC), 0);
    const auto before = find_latest_checkpoint(folder.path());
    const pid_t child = fork();
    if (child == 0) {
      const auto store = CheckpointStore::open({.root = folder.path(), .keep = 2}, Logger::silent());
      // Twice the same step: the second replaces the first.
      for (int64_t i = 2 * (before->step + 1); i < 128; ++i) {
        const auto step = static_cast<uint8_t>(i / 2);
        if (!(*store)->save(checkpoints[step]) || write(said[1], &step, 1) != 1) _exit(1);
      }
      _exit(0);
    }
    close(said[1]);
    // The instant: after some reports, and a little later.
    int64_t reported = before->step;
    uint8_t step = 0;
    for (int reports = rand_r(&seed) % 4; reports > 0 && read(said[0], &step, 1) == 1; --reports) reported = step;
    for (int spin = rand_r(&seed) % 20000; spin > 0; --spin) asm volatile("");
    kill(child, SIGKILL);
    while (read(said[0], &step, 1) == 1) reported = step;
    close(said[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << "a save failed";

    const auto search = find_latest_checkpoint(folder.path());
    ASSERT_TRUE(search);
    EXPECT_TRUE(search->skipped.empty()) << search->skipped[0].reason;
    EXPECT_GE(search->step, reported);
    EXPECT_LE(search->step, reported + 1);
    if (search->folder) {
      const auto read = read_checkpoint(*search->folder);
      ASSERT_TRUE(read) << read.error().message;
      expect_is(*read, search->step);
    }
    if (search->step == 63) fs::remove_all(folder.path() / "step-00000063");
  }
}

// What makes the disk too small for the big checkpoint.
enum class Limit { kTmpfs, kFileSize };

bool mount_small_disk(const fs::path& folder) {
  const bool namespaced = unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
  return namespaced && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
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
  const test::TemporaryFolder folder;
  const fs::path& root = folder.path();
  const Checkpoint small = checkpoint_of(1);
  const Checkpoint big = checkpoint_of(2, 1 << 19);
  const Checkpoint next = checkpoint_of(3);
  const int code = in_child([&] {
    // Where no mount is allowed, the file size limit stands in for the small disk.
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
    if (names_in(root) != std::vector<std::string>{".lock", "fence.json", "step-00000001"}) return 6;
    if (!(*store)->save(next)) return 7;  // the failed save gave its space back
    return find_latest_checkpoint(root)->step == 3 ? 0 : 8;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace oarlock
