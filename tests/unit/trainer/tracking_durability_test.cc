// Points before a checkpoint survive a failure of the node, as the checkpoint does: sync() after their last write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "tests/support/system_calls.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tracking_events.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/journal.h"
#include "trainer/tracking/sink.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::scalar_at;
using test::started;
using test::SystemCall;

class TrackingDurabilityTest : public testing::Test {
 protected:
  SinkContext context() const {
    return {.directory = directory_.path() / "tracking", .logger = Logger::silent(), .clock = clock_};
  }

  // Expects that the body, which gives 0, leaves no content and no name that was not synced. Files for other processes,
  // and the position of a journal, without which events are repeated only, are not considered.
  void expect_durable(const std::function<int()>& body) const {
    std::map<std::string, std::string> unsynced;  // what happened by file or directory
    size_t writes = 0;
    for (const SystemCall& call : test::system_calls(directory_.path(), body)) {
      const auto is_ignored = [](const fs::path& path) {
        return path.extension() == ".delivered" || path.string().ends_with(".delivered.new");
      };
      if (is_ignored(call.path)) continue;
      if (call.is_write()) {
        unsynced[call.path] = "content of " + call.path;
        ++writes;
      }
      if (call.creates) unsynced[fs::path(call.path).parent_path()] = "name " + call.path;
      if (call.is_rename()) {
        unsynced[fs::path(call.target).parent_path()] = "name " + call.target;
        if (const auto content = unsynced.extract(call.path); !content.empty())
          unsynced[call.target] = content.mapped();
      }
      if (call.is_sync()) unsynced.erase(call.path);
    }
    EXPECT_GT(writes, 0);
    for (const auto& [path, what] : unsynced) ADD_FAILURE() << what << " is not synced";
  }

  RealClock clock_;
  test::TemporaryDirectory directory_;
};

int write_and_sync(Sink& sink) {
  if (!sink.write(std::vector<Event>{started(0), scalar_at(10)}) || !sink.sync()) return 1;
  // Values of one step are a row of W&B's history, which ends with the next step.
  if (!sink.write(std::vector<Event>{scalar_at(20), scalar_at(20, 1, "eval/loss")}) || !sink.sync()) return 2;
  if (!sink.write(std::vector<Event>{scalar_at(30), scalar_at(40)})) return 3;
  return sink.sync() ? 0 : 4;
}

TEST_F(TrackingDurabilityTest, TensorBoard) {
  const auto sink = make_tensorboard_sink({}, context());
  expect_durable([&] { return write_and_sync(*sink); });
}

TEST_F(TrackingDurabilityTest, WeightsAndBiases) {
  const auto sink = make_wandb_sink({}, context());
  expect_durable([&] { return write_and_sync(*sink); });
}

TEST_F(TrackingDurabilityTest, JournalOfAServer) {
  expect_durable([&] {
    const auto journal = Journal::open(directory_.path(), "sink", 1 << 20);
    if (!journal || !(*journal)->append({encode_event(started(0))}) || !(*journal)->sync()) return 1;
    if (!(*journal)->append({encode_event(scalar_at(1))})) return 2;
    return (*journal)->sync() ? 0 : 3;
  });
}

TEST_F(TrackingDurabilityTest, NothingIsSyncedTwice) {
  const auto sink = make_tensorboard_sink({}, context());
  ASSERT_TRUE(sink->write(std::vector<Event>{started(0), scalar_at(10)}));
  ASSERT_TRUE(sink->sync());
  EXPECT_TRUE(test::system_calls(directory_.path(), [&] { return sink->sync() ? 0 : 1; }).empty());
}

}  // namespace
}  // namespace oarlock
