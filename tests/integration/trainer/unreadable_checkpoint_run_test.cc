// A run whose checkpoints cannot be read: it never restarts from the beginning by itself, and never overwrites, moves
// or removes a checkpoint that may be intact. With real processes and a real directory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/files.h"
#include "ddp/digest_file.h"
#include "tests/integration/trainer/run_support.h"
#include "trainer/checkpoint/directory.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::TemporaryDirectory;
using test::TrainerRanks;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::string config_to(int64_t steps, const std::string& more = "") {
  return fmt::format(
      "task: tiny\nsteps: {}\nbatch: {{size: 16}}\neval: {{every_epochs: 0}}\ncheckpoint: {{every_steps: 2, keep: "
      "1{}}}\n",
      steps, more);
}

// A root with the checkpoints of the steps 2 and 4 of a run; later runs continue to step 8.
class UnreadableRun : public testing::Test {
 protected:
  UnreadableRun() {
    const std::string two =
        "task: tiny\nsteps: 4\nbatch: {size: 16}\neval: {every_epochs: 0}\ncheckpoint: {every_steps: "
        "2, keep: 0}\n";
    TrainerRanks ranks(1, options(two));
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    EXPECT_TRUE(fs::exists(newest() / kManifestFile));
  }

  const fs::path& root() const { return directory_.path(); }
  fs::path newest() const { return root() / "step-00000004"; }
  fs::path older() const { return root() / "step-00000002"; }
  static void write(const fs::path& file, const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
  }
  test::TrainerOptions options(const std::string& config) const {
    return {.config = config, .arguments = {"--checkpoint-dir", root().string()}, .environment = {}, .directory = {}};
  }

  // The files of all checkpoints with their content.
  std::map<std::string, std::string> checkpoints() const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      const bool of_checkpoint = entry.path().parent_path() != root();
      if (of_checkpoint && entry.is_regular_file() && !entry.is_symlink())
        out[entry.path().string()] = test::content(entry.path());
    }
    return out;
  }

  void expect_ends(int world_size, ExitCode code, const std::string& reason) const {
    const auto before = checkpoints();
    TrainerRanks ranks(world_size, options(config_to(8)));
    EXPECT_THAT(ranks.wait(), Each(to_int(code))) << ranks.rank(0).err();
    EXPECT_THAT(ranks.last_word(world_size - 1).message, HasSubstr(reason));
    EXPECT_EQ(checkpoints(), before);
  }

  std::unique_ptr<TrainerRanks> expect_completes(const std::string& config) const {
    auto ranks = std::make_unique<TrainerRanks>(1, options(config));
    EXPECT_THAT(ranks->wait(), Each(0)) << ranks->rank(0).err();
    const auto search = find_latest_checkpoint(root());
    EXPECT_TRUE(search && search->step == 8);
    return ranks;
  }

  TemporaryDirectory directory_;
};

TEST_F(UnreadableRun, AnotherFormatVersionEndsTheRunOnAllRanks) {
  for (const fs::path& directory : {newest(), older()}) {
    json manifest = json::parse(test::content(directory / kManifestFile));
    manifest["version"] = 3;
    write(directory / kManifestFile, manifest.dump());
  }
  expect_ends(2, ExitCode::kCheckpoint, "version 3 is not one that this oarlock-trainer reads");
  TrainerRanks ranks(1, options(config_to(8)));
  ranks.wait();
  EXPECT_EQ(ranks.last_word(0).reason, "CheckpointUnreadable");
}

// The checksum of state.json is right. A later release may keep other values under a known name.
TEST_F(UnreadableRun, ValuesOfAnotherReleaseEndTheRunOnAllRanks) {
  const json good = json::parse(test::content(newest() / kStateFile));
  const auto with = [&](const std::string& pointer, const json& value) {
    json state = good;
    state[json::json_pointer(pointer)] = value;
    write(newest() / kStateFile, state.dump());
    json manifest = json::parse(test::content(newest() / kManifestFile));
    const FileDigest digest = digest_of(newest() / kStateFile).value();
    manifest["files"][kStateFile] = {{"bytes", digest.bytes}, {"xxh3_128", digest.xxh3_128}};
    write(newest() / kManifestFile, manifest.dump());
  };
  for (const auto& [pointer, value] : std::multimap<std::string, json>{{"/extra/task", 5}, {"/extra/seed", "12"}}) {
    SCOPED_TRACE(pointer + " = " + value.dump());
    with(pointer, value);
    expect_ends(2, ExitCode::kCheckpoint, "this release does not know the ");
  }
  with("/extra/later", {{"unknown", 1}});
  expect_completes(config_to(8));
}

TEST_F(UnreadableRun, AnIoErrorEndsTheRunSoThatARestartReadsAgain) {
  const std::string good = test::content(newest() / kManifestFile);
  fs::remove(newest() / kManifestFile);
  fs::create_symlink("/proc/self/mem", newest() / kManifestFile);  // open(2) works, read(2) gives EIO
  expect_ends(2, ExitCode::kTempFail, "Input/output error");
  TrainerRanks ranks(1, options(config_to(8)));
  ranks.wait();
  EXPECT_EQ(ranks.last_word(0).reason, "TemporaryFailure");
  // The disk works again.
  fs::remove(newest() / kManifestFile);
  write(newest() / kManifestFile, good);
  const auto resumed = expect_completes(config_to(8));
  EXPECT_EQ(resumed->log_line(0, "resuming from a checkpoint")["resumed_from_step"], 4);
}

TEST_F(UnreadableRun, ADirectoryInThePlaceOfAFileEndsTheRun) {
  fs::remove(newest() / "model.safetensors");
  fs::create_directory(newest() / "model.safetensors");
  expect_ends(1, ExitCode::kCheckpoint, "something else is in its place");
}

// Drops the two capabilities with which root can read files regardless of their mode, for this thread and its children.
void drop_file_capabilities() {
  if (geteuid() != 0) return;
  for (const int capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH})
    ASSERT_EQ(prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), 0);
}

TEST_F(UnreadableRun, PermissionsThatLackEndTheRun) {
  std::thread([&] {
    drop_file_capabilities();
    for (const fs::path& place : {newest() / kManifestFile, newest() / "model.safetensors", newest()}) {
      SCOPED_TRACE(place);
      const auto before = checkpoints();
      const fs::perms good = fs::status(place).permissions();
      fs::permissions(place, fs::perms::none);
      TrainerRanks ranks(1, options(config_to(8)));
      EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kNoPermission))) << ranks.rank(0).err();
      EXPECT_THAT(ranks.last_word(0).message, AllOf(HasSubstr(newest().string()), HasSubstr("Permission denied")));
      fs::permissions(place, good);
      EXPECT_EQ(checkpoints(), before);
    }
    // The directory can be written to and searched, and not listed.
    fs::permissions(root(), fs::perms::owner_write | fs::perms::owner_exec);
    TrainerRanks ranks(1, options(config_to(8)));
    EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kNoPermission))) << ranks.rank(0).err();
    EXPECT_THAT(ranks.last_word(0).message, HasSubstr("cannot be listed"));
    fs::permissions(root(), fs::perms::owner_all);
  }).join();
}

TEST_F(UnreadableRun, ADamagedCheckpointIsSkippedLoudlyAndKept) {
  const std::string damaged = "damage" + test::content(newest() / "model.safetensors").substr(6);
  write(newest() / "model.safetensors", damaged);
  const auto resumed = expect_completes(config_to(8));
  EXPECT_EQ(resumed->log_line(0, "resuming from a checkpoint")["resumed_from_step"], 2);
  EXPECT_THAT(resumed->log_line(0, "a checkpoint is not valid and was skipped")["reason"].dump(),
              HasSubstr("checksum"));
  // The run has saved step 4 itself since, and removed all but its last checkpoint.
  EXPECT_EQ(test::content(root() / "damaged-step-00000004" / "model.safetensors"), damaged);
}

TEST_F(UnreadableRun, EndsIfEveryCheckpointIsDamaged) {
  for (const fs::path& directory : {newest(), older()}) write(directory / kStateFile, "{}");
  expect_ends(1, ExitCode::kCheckpoint, "every checkpoint is damaged (2)");
  TrainerRanks ranks(1, options(config_to(8)));
  ranks.wait();
  EXPECT_THAT(ranks.last_word(0).message, HasSubstr("checkpoint.on_all_damaged"));

  expect_completes(config_to(8, ", on_all_damaged: restart"));
  for (const char* name : {"damaged-step-00000004", "damaged-step-00000002"})
    EXPECT_EQ(test::content(root() / name / kStateFile), "{}") << name;
}

// Makes symlink(2) fail for this thread and its children, as on a file system without symbolic links.
void forbid_symbolic_links() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_symlinkat, 1, 0),
#ifdef SYS_symlink
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_symlink, 0, 1),
#else
      BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
#endif
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{.len = sizeof code / sizeof code[0], .filter = code};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

// The learning rate makes the model worse, so a pass with the last weights would be one of another step.
TEST(BestWithoutSymbolicLinks, PassesUseTheBestWeights) {
  const auto run = [](const TemporaryDirectory& directory) {
    const std::string config = fmt::format(
        "task: tiny\nsteps: 12\nbatch: {{size: 24, per: global}}\noptimizer: {{name: sgd, lr: 30}}\neval: "
        "{{every_steps: 3}}\n"
        "checkpoint: {{keep: 2}}\ndata: {{samples: 96, eval_samples: 31, pass_file: {}, pass_best: true}}\n",
        (directory.path() / "passes").string());
    TrainerRanks ranks(1, {.config = config,
                           .arguments = {"--checkpoint-dir", (directory.path() / "ck").string()},
                           .environment = {},
                           .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    return ranks.log_line(0, "loaded the weights of the best checkpoint");
  };
  const TemporaryDirectory with_links;
  const json expected = run(with_links);
  ASSERT_FALSE(expected.empty());
  const TemporaryDirectory without_links;
  json found;
  std::thread([&] {
    forbid_symbolic_links();
    found = run(without_links);
  }).join();
  EXPECT_LT(expected["step"], 12) << "this test requires a run whose loss increases";
  EXPECT_TRUE(fs::is_symlink(with_links.path() / "ck" / "best"));
  EXPECT_FALSE(fs::is_symlink(without_links.path() / "ck" / "best"));
  EXPECT_EQ(link_target(without_links.path() / "ck", kBestLink), link_target(with_links.path() / "ck", kBestLink));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found["step"], expected["step"]);
}

}  // namespace
}  // namespace oarlock
