// The tracker: a full disk, and what waits for it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "common/files.h"
#include "common/status_macros.h"
#include "tests/support/full_disk.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tracking_events.h"
#include "tests/unit/trainer/tracker_fixture.h"
#include "trainer/tracking/directory_claim.h"
#include "trainer/tracking/tracker.h"

namespace oarlock {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using test::count_of;
using test::FakeServer;
using test::FullDisk;
using test::kClaimInterval;
using test::kPatience;
using test::make_logging_tracker;
using test::scalar_at;
using test::TemporaryDirectory;
using testing::ElementsAre;

class SyncedSink final : public Sink {
 public:
  struct Counts {
    std::atomic<size_t> written = 0;
    std::atomic<size_t> synced = 0;
    std::atomic<bool> fails = false;
  };
  explicit SyncedSink(std::shared_ptr<Counts> counts) : counts_(std::move(counts)) {}
  std::string_view name() const override { return "synced"; }
  bool is_remote() const override { return false; }
  Result<size_t> write(std::span<const Event> events) override {
    counts_->written += events.size();
    return events.size();
  }
  Result<void> sync() override {
    if (counts_->fails) return fail(ExitCode::kIoErr, "input/output error");
    counts_->synced = counts_->written.load();
    return {};
  }

 private:
  std::shared_ptr<Counts> counts_;
};

TEST(Tracker, PersistSyncsWhatWasWritten) {
  testing::internal::CaptureStderr();
  {
    const auto counts = std::make_shared<SyncedSink::Counts>();
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<SyncedSink>(counts));
    Tracker tracker({.directory = "", .batch_interval = 1ms}, std::move(sinks),
                    Logger(LogFormat::kText, LogLevel::kInfo));
    tracker.add(scalar_at(1));
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (counts->written == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(counts->synced, 0);
    EXPECT_TRUE(tracker.persist(kPatience));  // without another point
    EXPECT_EQ(counts->synced, 1);
    tracker.add(scalar_at(2));
    tracker.add(scalar_at(3));
    EXPECT_TRUE(tracker.persist(kPatience));
    EXPECT_EQ(counts->synced, 3);
    EXPECT_TRUE(tracker.persist(kPatience));
    counts->fails = true;  // which holds up nothing
    for (int64_t step = 4; step <= 5; ++step) {
      tracker.add(scalar_at(step));
      EXPECT_TRUE(tracker.persist(kPatience));
    }
    EXPECT_EQ(counts->written, 5);
    tracker.finish(kPatience);
  }
  EXPECT_EQ(count_of(testing::internal::GetCapturedStderr(), "may be missing if the node fails"), 1);
}

// A sink that writes files, and fails as long as the disk is full.
class FailingSink final : public Sink {
 public:
  explicit FailingSink(std::shared_ptr<std::atomic<bool>> is_full) : is_full_(std::move(is_full)) {}
  std::string_view name() const override { return "failing"; }
  bool is_remote() const override { return false; }
  Result<size_t> write(std::span<const Event> events) override {
    RETURN_IF_ERROR(flush());
    return events.size();
  }
  Result<void> flush() override {
    if (*is_full_) return fail(ExitCode::kIoErr, "the disk is full");
    return {};
  }

 private:
  std::shared_ptr<std::atomic<bool>> is_full_;
};

TEST(Tracker, ReportsAFullDiskAndItsEndOnce) {
  testing::internal::CaptureStderr();
  {
    const auto is_full = std::make_shared<std::atomic<bool>>(true);
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<FailingSink>(is_full));
    Tracker tracker({.directory = ""}, std::move(sinks), Logger(LogFormat::kText, LogLevel::kInfo));
    for (const bool full : {true, true, false, false, true, false}) {
      *is_full = full;
      tracker.add(scalar_at(1));
      EXPECT_TRUE(tracker.persist(kPatience));
    }
    tracker.finish(kPatience);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(log, "tracking: points cannot be written"), 1) << log;
  EXPECT_EQ(count_of(log, "the disk is full"), 1) << log;
  EXPECT_EQ(count_of(log, "tracking: points are written again"), 1) << log;
}

// A sink that writes files, and keeps the events that it could not write.
class WaitingSink final : public Sink {
 public:
  struct Disk {
    std::mutex mutex;
    int failures = 0;  // of the next calls
    std::vector<int64_t> steps;
  };

  explicit WaitingSink(std::shared_ptr<Disk> disk) : disk_(std::move(disk)) {}
  std::string_view name() const override { return "waiting"; }
  bool is_remote() const override { return false; }
  Result<size_t> write(std::span<const Event> events) override {
    for (const Event& event : events) kept_.push_back(event.step);
    RETURN_IF_ERROR(flush());
    return events.size();
  }
  Result<void> flush() override {
    const std::lock_guard lock(disk_->mutex);
    if (disk_->failures-- > 0) return fail(ExitCode::kIoErr, "the disk is full");
    disk_->steps.insert(disk_->steps.end(), kept_.begin(), kept_.end());
    kept_.clear();
    return {};
  }

 private:
  std::shared_ptr<Disk> disk_;
  std::vector<int64_t> kept_;
};

// No event follows that would make the sink write those that it has kept.
TEST(Tracker, WaitsAtTheEndForSpaceOnTheDisk) {
  const auto disk = std::make_shared<WaitingSink::Disk>();
  disk->failures = 3;
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<WaitingSink>(disk));
  Tracker tracker({.directory = "", .claim_interval = kClaimInterval}, std::move(sinks), Logger::silent());
  tracker.add(scalar_at(1));
  tracker.add(scalar_at(2));
  EXPECT_TRUE(tracker.wait_for_delivery(kPatience));
  const std::lock_guard lock(disk->mutex);
  EXPECT_THAT(disk->steps, ElementsAre(1, 2));
}

TEST(Tracker, TriesToWriteAgainWithoutATimeLimitAtTheEnd) {
  const auto disk = std::make_shared<WaitingSink::Disk>();
  disk->failures = 1;
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<WaitingSink>(disk));
  Tracker tracker({.directory = "", .claim_interval = 1h}, std::move(sinks), Logger::silent());
  tracker.add(scalar_at(1));
  EXPECT_TRUE(tracker.persist(kPatience));  // the first failure
  tracker.finish(0ms);
  const std::lock_guard lock(disk->mutex);
  EXPECT_THAT(disk->steps, ElementsAre(1));
}

Event end_of_run(int64_t step) {
  Event out = scalar_at(step);
  out.content = RunFinished{.success = true, .reason = "Completed", .message = "", .summary = {}, .time_table = ""};
  return out;
}

// Its journal is larger than the captured log, which FullDisk limits as well.
Event long_text_at(int64_t step) {
  Event out = scalar_at(step);
  out.content = Text{"text", std::string(8 << 10, 'x')};
  return out;
}

// The server answers again while the disk is still full.
TEST(Tracker, DeliversWhileTheDiskOfTheJournalIsFull) {
  testing::internal::CaptureStderr();
  {
    const TemporaryDirectory directory;
    const auto server = std::make_shared<FakeServer>();
    server->set(FakeServer::Answer::kFails);
    const std::unique_ptr<Tracker> tracker = make_logging_tracker(directory.path(), server);
    tracker->add(scalar_at(1));
    ASSERT_TRUE(tracker->persist(kPatience));
    const FullDisk full(fs::file_size(directory.path() / "fake.journal") + 500);  // space for the longest event
    for (int64_t step = 2; step <= 50; ++step) {
      tracker->add(scalar_at(step));
      ASSERT_TRUE(tracker->persist(kPatience));
    }
    tracker->add(end_of_run(51));
    ASSERT_TRUE(tracker->persist(kPatience));
    server->set(FakeServer::Answer::kOk);
    EXPECT_TRUE(tracker->wait_for_delivery(kPatience));
    std::vector<int64_t> expected(51);
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(server->steps(), expected);
    tracker->finish(kPatience);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(log, "tracking: points cannot be written"), 1) << log;
  EXPECT_EQ(count_of(log, "tracking: points are written again"), 1) << log;
  EXPECT_EQ(count_of(log, "dropped"), 0) << log;
}

TEST(Tracker, LimitsTheMemoryOfEventsThatWaitForTheJournal) {
  testing::internal::CaptureStderr();
  const auto server = std::make_shared<FakeServer>();
  server->set(FakeServer::Answer::kFails);
  {
    const TemporaryDirectory directory;
    const std::unique_ptr<Tracker> tracker = make_logging_tracker(directory.path(), server);
    tracker->add(long_text_at(1));
    ASSERT_TRUE(tracker->persist(kPatience));
    {
      const FullDisk full(fs::file_size(directory.path() / "fake.journal"));
      for (int64_t step = 2; step <= 9; ++step) {
        Event text = scalar_at(step);
        text.content = Text{"text", std::string(300 << 10, 'x')};
        tracker->add(text);
        ASSERT_TRUE(tracker->persist(kPatience));
      }
      tracker->add(end_of_run(10));
      ASSERT_TRUE(tracker->persist(kPatience));
    }
    server->set(FakeServer::Answer::kOk);
    EXPECT_TRUE(tracker->wait_for_delivery(kPatience));
    EXPECT_THAT(server->steps(), ElementsAre(1, 2, 3, 4, 10));
    tracker->finish(kPatience);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(log, "tracking: points are dropped"), 1) << log;
}

TEST(Tracker, ReportsEventsThatAreLostWithAFullDisk) {
  testing::internal::CaptureStderr();
  const auto server = std::make_shared<FakeServer>();
  server->set(FakeServer::Answer::kFails);
  const TemporaryDirectory directory;
  const std::unique_ptr<Tracker> tracker = make_logging_tracker(directory.path(), server);
  tracker->add(long_text_at(1));
  ASSERT_TRUE(tracker->persist(kPatience));
  const FullDisk full(fs::file_size(directory.path() / "fake.journal"));
  tracker->add(scalar_at(2));
  tracker->finish(0ms);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(log, "points that waited for space on the disk are lost"), 1) << log;
}

}  // namespace
}  // namespace oarlock
