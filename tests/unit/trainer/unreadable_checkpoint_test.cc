// Only a checkpoint that is proven to be damaged is skipped. A checkpoint that cannot be read for another reason stops
// the run, and no save overwrites or removes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "tests/support/checkpoints.h"
#include "tests/support/system_calls.h"
#include "tests/support/temporary_directory.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/store.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::checkpoint_of;
using test::error_of;
using test::expect_is;
using test::must;
using test::names_in;
using test::open_store;
using test::SystemCall;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kOld[] = "step-00000010";
constexpr char kNew[] = "step-00000020";

// A root with checkpoints of the steps 10 and 20.
class TwoCheckpoints : public testing::Test {
 protected:
  TwoCheckpoints() {
    for (const int64_t step : {10, 20}) must(open_store(root())->save(checkpoint_of(step, 4)));
  }

  const fs::path& root() const { return directory_.path(); }
  void write(const fs::path& file, const std::string& content) const {
    std::ofstream(file, std::ios::binary) << content;
  }

  void change_json(const fs::path& file, const std::function<void(json&)>& change) const {
    json value = json::parse(must(read_file(file)));
    change(value);
    write(file, value.dump());
  }
  // Changes a file of a checkpoint, and its entry in the manifest with it.
  void rewrite(const fs::path& file, const std::string& content) const {
    write(file, content);
    const FileDigest digest = must(digest_of(file));
    change_json(file.parent_path() / kManifestFile, [&](json& manifest) {
      manifest["files"][file.filename().string()] = {{"bytes", digest.bytes}, {"xxh3_128", digest.xxh3_128}};
    });
  }

  // Every file below the root with its content.
  std::map<std::string, std::string> everything() const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      std::error_code unreachable;  // a link to itself
      if (entry.is_regular_file(unreachable)) out[entry.path().string()] = must(read_file(entry.path()));
    }
    return out;
  }

  // Both readers fail in this way, and change nothing.
  void expect_stops(ExitCode code, const std::string& reason) const {
    const auto before = everything();
    for (const Error& error : {error_of(find_latest_checkpoint(root())), error_of(read_latest_checkpoint(root()))}) {
      EXPECT_EQ(error.code, code) << error.message;
      EXPECT_THAT(error.message, HasSubstr(reason));
      EXPECT_THAT(error.message, HasSubstr(root().string()));
    }
    EXPECT_EQ(everything(), before);
  }
  // Both readers skip the newest.
  void expect_skips(const std::string& reason) const {
    for (const CheckpointSearch& search :
         {must(find_latest_checkpoint(root())), must(read_latest_checkpoint(root())).search}) {
      EXPECT_EQ(search.step, 10);
      ASSERT_EQ(search.skipped.size(), 1U);
      EXPECT_THAT(search.skipped[0].reason, HasSubstr(reason));
    }
  }

  test::TemporaryDirectory directory_;
};

TEST_F(TwoCheckpoints, UnknownFormatVersionStops) {
  for (const json& version : {json(3), json(0), json(UINT64_MAX)}) {
    // A later version may have quite other members.
    write(root() / kNew / kManifestFile, json{{"format", "oarlock-checkpoint"}, {"version", version}}.dump());
    expect_stops(ExitCode::kCheckpoint, "version " + version.dump() + " is not one that this oarlock-trainer reads");
  }
  // A later version may also be written in another way.
  for (const json& version : {json("3"), json(-3), json(2.5), json{{"major", 3}}, json(nullptr)}) {
    write(root() / kNew / kManifestFile, json{{"format", "oarlock-checkpoint"}, {"version", version}}.dump());
    expect_stops(ExitCode::kCheckpoint, "is not one that this oarlock-trainer reads");
  }
  write(root() / kNew / kManifestFile, R"({"format": "oarlock-sharded-checkpoint", "version": 2})");
  expect_stops(ExitCode::kCheckpoint, "oarlock-sharded-checkpoint");
}

TEST_F(TwoCheckpoints, AcceptsUnknownMembersAndFiles) {
  const fs::path step = root() / kNew;
  json state = json::parse(must(read_file(step / kStateFile)));
  state["data_position"] = {{"shard", 7}};
  rewrite(step / kStateFile, state.dump());
  rewrite(step / "notes.txt", "written by a later release");
  change_json(step / kManifestFile, [](json& manifest) {
    manifest["written_by"] = "0.9.0";
    manifest["files"]["state.json"]["compression"] = "none";
  });
  EXPECT_EQ(must(find_latest_checkpoint(root())).step, 20);
  expect_is(must(must(read_latest_checkpoint(root())).checkpoint), 20);
  write(step / "notes.txt", "damaged, by a later release");
  expect_skips("notes.txt");
}

TEST_F(TwoCheckpoints, ReadsOldestFormatVersion) {
  const fs::path step = root() / kNew;
  json state = json::parse(must(read_file(step / kStateFile)));
  state.erase("high_water_step");
  state.erase("sections");
  rewrite(step / kStateFile, state.dump());
  change_json(step / kManifestFile, [](json& manifest) { manifest["version"] = 1; });
  const Checkpoint read = must(must(read_latest_checkpoint(root())).checkpoint);
  expect_is(read, 20);
  EXPECT_EQ(read.state.high_water_step, 20);
  EXPECT_EQ(read.state.sections, (json{{"noise", json::object()}, {"optimizer", json::object()}}));
}

TEST_F(TwoCheckpoints, SkipsDamage) {
  const auto damage = [&](const std::string& name, const std::string& content, const std::string& reason) {
    SCOPED_TRACE(name);
    const std::string good = must(read_file(root() / kNew / name));
    write(root() / kNew / name, content);
    expect_skips(reason);
    fs::remove(root() / kNew / name);
    expect_skips(name);
    write(root() / kNew / name, good);
  };
  damage("manifest.json", "", "not JSON");
  damage("manifest.json", "[]", "not the manifest of an oarlock-checkpoint");
  damage("manifest.json", R"({"format": "oarlock-checkpoint", "version": 2})", "step or files");
  damage("manifest.json", R"({"format": "oarlock-checkpoint", "version": 2, "step": 20, "files": {"../x": {}}})",
         "file name \"../x\" is not valid");
  damage("manifest.json",
         R"({"format": "oarlock-checkpoint", "version": 2, "step": 20, "files": {"x": {"bytes": -1, "xxh3_128": ""}}})",
         "the entry of x is not valid");
  damage("manifest.json",
         R"({"format": "oarlock-checkpoint", "version": 2, "step": 18446744073709551615, "files": {}})",
         "step or files");
  damage("state.json", "{}", "bytes");
  damage("model.safetensors", "", "bytes");
  const std::string model = must(read_file(root() / kNew / "model.safetensors"));
  damage("model.safetensors", std::string(model.size(), 'x'), "checksum");
  std::string flipped = model;
  flipped.back() ^= 1;
  damage("model.safetensors", flipped, "checksum");
}

// The content was written by a release whose files this one does not support.
TEST_F(TwoCheckpoints, UnknownContentWithValidChecksumStops) {
  const std::string model = must(read_file(root() / kNew / "model.safetensors"));
  std::string other = model;
  other.replace(other.find("\"F32\""), 5, "\"F4\" ");
  rewrite(root() / kNew / "model.safetensors", other);
  const Error error = error_of(read_latest_checkpoint(root()));
  EXPECT_EQ(error.code, ExitCode::kCheckpoint);
  EXPECT_THAT(error.message, AllOf(HasSubstr("\"F4\" is not supported"), HasSubstr("its checksum is right")));
  rewrite(root() / kNew / "model.safetensors", model);
  expect_is(must(must(read_latest_checkpoint(root())).checkpoint), 20);

  rewrite(root() / kNew / kStateFile, R"({"step": 20})");
  expect_stops(ExitCode::kCheckpoint, "the checksum is right");
}

// An unknown state is not damage. It must not be truncated to an int, and must not exhaust the stack.
TEST_F(TwoCheckpoints, StateOutOfRangeStops) {
  const std::string state = must(read_file(root() / kNew / kStateFile));
  const auto with = [&](const std::string& member, const std::string& value) {
    std::string text = state;
    const size_t begin = text.find("\"" + member + "\":") + member.size() + 3;
    return text.replace(begin, text.find_first_of(",}", begin) - begin, value);
  };
  rewrite(root() / kNew / kStateFile, with("world_size", "4294967297"));
  expect_stops(ExitCode::kCheckpoint, "world_size is too large");
  rewrite(root() / kNew / kStateFile, with("attempt", "2147483648"));
  expect_stops(ExitCode::kCheckpoint, "attempt is too large");
  rewrite(root() / kNew / kStateFile,
          "{\"a\": " + std::string(200'000, '[') + std::string(200'000, ']') + "," + state.substr(1));
  expect_stops(ExitCode::kCheckpoint, "nested deeper than 100 levels");
}

TEST_F(TwoCheckpoints, UnexpectedFileTypeStops) {
  for (const char* name : {"manifest.json", "state.json", "model.safetensors"}) {
    const fs::path file = root() / kNew / name;
    const std::string good = must(read_file(file));
    fs::remove(file);
    fs::create_directory(file);
    expect_stops(ExitCode::kCheckpoint, name);
    fs::remove(file);
    fs::create_symlink("away", file);  // as to a disk that is not mounted
    expect_stops(ExitCode::kCheckpoint, name);
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // without a writer
    expect_stops(ExitCode::kCheckpoint, name);
    fs::remove(file);
    fs::create_symlink("/dev/zero", file);
    expect_stops(ExitCode::kCheckpoint, name);
    fs::remove(file);
    write(file, good);
  }
  EXPECT_EQ(must(find_latest_checkpoint(root())).step, 20);
  fs::rename(root() / kNew, root() / "elsewhere");
  for (const char* target : {"away", kNew}) {  // the other is a loop
    fs::create_symlink(target, root() / kNew);
    expect_stops(ExitCode::kCheckpoint, kNew);
    fs::remove(root() / kNew);
  }
  fs::create_symlink("away", root() / kNew);
  fs::remove(root() / kNew);
  write(root() / kNew, "a file");
  expect_stops(ExitCode::kCheckpoint, kNew);
}

// Their content would take much memory, and no release writes so much.
TEST_F(TwoCheckpoints, TooLargeFilesStop) {
  const fs::path manifest = root() / kNew / kManifestFile;
  const fs::path state = root() / kNew / kStateFile;
  constexpr size_t kStateBytes = size_t{300} << 20;
  change_json(manifest, [&](json& value) { value["files"][kStateFile]["bytes"] = kStateBytes; });
  fs::resize_file(state, kStateBytes);
  for (const Error& error : {error_of(find_latest_checkpoint(root())), error_of(read_latest_checkpoint(root()))}) {
    EXPECT_EQ(error.code, ExitCode::kCheckpoint);
    EXPECT_THAT(error.message, HasSubstr("state.json: larger than the 268435456 bytes"));
  }
  EXPECT_EQ(fs::file_size(state), kStateBytes);
  fs::resize_file(state, 1);
  fs::resize_file(manifest, (size_t{16} << 20) + 1);
  expect_stops(ExitCode::kCheckpoint, "manifest.json: larger than the 16777216 bytes");
}

TEST_F(TwoCheckpoints, AnythingElseThanAFenceStops) {
  const fs::path fence = root() / kFenceFile;
  const auto expect_no_fence = [&] {
    const Error error = error_of(CheckpointStore::open({.root = root()}, Logger::silent()));
    EXPECT_EQ(error.code, ExitCode::kDataErr);
    EXPECT_THAT(error.message, AllOf(HasSubstr(fence.string()), HasSubstr("not a fence file")));
  };
  fs::resize_file(fence, kMaxFenceBytes + 1);
  expect_no_fence();
  fs::remove(fence);
  ASSERT_EQ(::mkfifo(fence.c_str(), 0600), 0);
  expect_no_fence();
  fs::remove(fence);
  fs::create_symlink("/dev/zero", fence);
  expect_no_fence();
  fs::remove(fence);
  EXPECT_TRUE(CheckpointStore::open({.root = root()}, Logger::silent()));
}

// Every system call on the newest checkpoint or the root fails once, with each error of a disk or file server. The
// search must never fall back to the older checkpoint.
TEST_F(TwoCheckpoints, FailedSystemCallsStop) {
  const std::map<int, ExitCode> codes{{EIO, ExitCode::kTempFail},       {ESTALE, ExitCode::kTempFail},
                                      {ETIMEDOUT, ExitCode::kTempFail}, {ENOMEM, ExitCode::kTempFail},
                                      {EMFILE, ExitCode::kTempFail},    {EACCES, ExitCode::kNoPermission},
                                      {EPERM, ExitCode::kNoPermission}};
  const auto before = everything();
  for (const auto& [number, expected] : codes) {
    int failed_calls = 0;
    for (int at = 0;; ++at) {
      int seen = 0;
      std::string failed;
      const int code = test::with_system_calls(
          [&] {
            const auto latest = read_latest_checkpoint(root());
            if (!latest) return to_int(latest.error().code);
            return latest->search.step == 20 ? 0 : 1;
          },
          [&, error = number](const SystemCall& call) {
            const bool opens_or_reads =
                call.name == "openat" || call.name == "open" || call.name == "getdents64" || call.is_read();
            const bool of_it = call.path == root() || call.path.starts_with((root() / kNew).string());
            if (!opens_or_reads || !of_it || seen++ != at) return 0;
            failed = call.name + " " + call.path;
            return error;
          });
      if (failed.empty()) break;
      ++failed_calls;
      EXPECT_EQ(code, to_int(expected)) << failed << ": " << std::generic_category().message(number);
    }
    EXPECT_GE(failed_calls, 12);  // open and read of five files, open and list of the directory
  }
  EXPECT_EQ(everything(), before);
}

// A restore reads the checkpoint once, not three times.
TEST_F(TwoCheckpoints, ReadsEachByteOnce) {
  std::map<std::string, size_t> opened;
  const auto calls = test::system_calls(root() / kNew, [&] { return read_latest_checkpoint(root()) ? 0 : 1; });
  for (const SystemCall& call : calls) {
    if ((call.name == "openat" || call.name == "open") && fs::is_regular_file(call.path)) ++opened[call.path];
    EXPECT_NE(call.name, "pread64") << "reads again: " << call.path;
  }
  EXPECT_EQ(opened.size(), 5U);
  for (const auto& [path, count] : opened) EXPECT_EQ(count, 1U) << path;
}

TEST_F(TwoCheckpoints, SaveNeverReplacesUnreadable) {
  write(root() / kNew / kManifestFile, R"({"format": "oarlock-checkpoint", "version": 3})");
  const auto before = everything();
  const auto store = open_store(root(), {}, /*keep=*/1);
  const Error refused = error_of(store->save(checkpoint_of(20, 4)));
  EXPECT_EQ(refused.code, ExitCode::kCheckpoint);
  EXPECT_THAT(refused.message, AllOf(HasSubstr("not replaced"), HasSubstr("version 3")));
  EXPECT_EQ(everything(), before);

  fs::remove(root() / kNew / kManifestFile);
  fs::create_symlink("/proc/self/mem", root() / kNew / kManifestFile);  // reading it gives EIO
  const Error failed = error_of(store->save(checkpoint_of(20, 4)));
  EXPECT_EQ(failed.code, ExitCode::kIoErr);
  EXPECT_FALSE(is_fenced_off(failed));
  EXPECT_TRUE(store->save(checkpoint_of(21, 4))) << "other steps can be saved";
}

TEST_F(TwoCheckpoints, RetentionKeepsUnreadable) {
  write(root() / kOld / kManifestFile, R"({"format": "oarlock-checkpoint", "version": 3})");
  const auto store = open_store(root(), {}, /*keep=*/1);
  must(store->save(checkpoint_of(30, 4)));
  must(store->save(checkpoint_of(40, 4)));
  EXPECT_THAT(names_in(root()), ElementsAre(".lock", "fence.json", "last", kOld, "step-00000040"));
  EXPECT_TRUE(fs::exists(root() / kOld / "model.safetensors"));
}

TEST_F(TwoCheckpoints, SetsDamagedAsideAndNeverRemovesThem) {
  const auto store = open_store(root(), {}, /*keep=*/1);
  std::vector<std::string> kept;
  for (const char* name : {"damaged-step-00000020", "damaged-step-00000020-2", "damaged-step-00000020-3"}) {
    write(root() / kNew / kStateFile, name);
    expect_skips("state.json");
    EXPECT_EQ(must(store->set_aside(root() / kNew)).filename(), name);
    EXPECT_FALSE(link_target(root(), kLastLink)) << "it would point to the next checkpoint of this step";
    must(open_store(root())->save(checkpoint_of(20, 4)));
    kept.emplace_back(name);
  }
  must(store->save(checkpoint_of(30, 4)));
  for (const std::string& name : kept) EXPECT_EQ(must(read_file(root() / name / kStateFile)), name);
  EXPECT_THAT(names_in(root()), testing::Not(Contains(kNew)));
  EXPECT_EQ(must(find_latest_checkpoint(root())).step, 30);
}

// Uses files in place of symbolic links if the file system has none. Readers accept both.
TEST_F(TwoCheckpoints, SupportsMissingSymbolicLinks) {
  const auto no_links = [&](const std::function<int()>& body) {
    return test::with_system_calls(
        body, [](const SystemCall& call) { return call.name == "symlink" || call.name == "symlinkat" ? EPERM : 0; });
  };
  EXPECT_EQ(no_links([&] {
              must(open_store(root(), {}, /*keep=*/1)->save(checkpoint_of(30, 4), 20));
              return 0;
            }),
            0);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(root() / "best")));
  EXPECT_EQ(must(read_file(root() / "best")), "step-00000020\n");
  EXPECT_EQ(link_target(root(), kBestLink), "step-00000020");
  EXPECT_EQ(link_target(root(), kLastLink), "step-00000030");
  EXPECT_THAT(names_in(root()), ElementsAre(".lock", "best", "fence.json", "last", "step-00000020", "step-00000030"));
  // The directory moves to a file system with links.
  must(open_store(root(), {}, /*keep=*/1)->save(checkpoint_of(40, 4), 40));
  EXPECT_TRUE(fs::is_symlink(root() / "best"));
  EXPECT_EQ(link_target(root(), kBestLink), "step-00000040");

  for (const char* content : {"", "step-00000040", "../step-00000040\n", "step-1\nstep-2\n", "best\n"}) {
    fs::remove(root() / "best");
    write(root() / "best", content);
    EXPECT_FALSE(link_target(root(), kBestLink)) << content;
  }
}

TEST_F(TwoCheckpoints, TransientRootFailureSucceedsOnRestart) {
  for (const int error : {EIO, ESTALE}) {
    const int code = test::with_system_calls(
        [&] {
          const auto store = CheckpointStore::open({.root = root()}, Logger::silent());
          return store ? 0 : to_int(store.error().code);
        },
        [&](const SystemCall& call) {
          return call.name == "openat" && call.path == root() / "fence.json" && !call.creates ? error : 0;
        });
    EXPECT_EQ(code, to_int(ExitCode::kTempFail)) << error;
  }
}

}  // namespace
}  // namespace oarlock
