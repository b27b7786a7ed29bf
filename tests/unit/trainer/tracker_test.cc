// The tracker between a run and its sinks.
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
#include "trainer/tracking/directory_claim.h"
#include "trainer/tracking/tracker.h"

namespace oarlock {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using test::count_of;
using test::FullDisk;
using test::scalar_at;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto kPatience = 120s;
constexpr auto kClaimInterval = 20ms;

// A server that the test controls.
class FakeServer {
 public:
  enum class Answer { kOk, kFails, kRejects, kHangs };

  Result<size_t> receive(std::span<const Event> events) {
    std::unique_lock lock(mutex_);
    calls_ += 1;
    changed_.notify_all();
    changed_.wait(lock, [this] { return answer_ != Answer::kHangs || is_cancelled_; });
    if (is_cancelled_) return fail(ExitCode::kUnavailable, "cancelled");
    if (answer_ == Answer::kFails) return fail(ExitCode::kUnavailable, "connection refused");
    if (answer_ == Answer::kRejects && events.front().step == 2) return fail(ExitCode::kDataErr, "rejected");
    steps_.push_back(events.front().step);  // one event per call
    if (const auto* text = std::get_if<Text>(&events.front().content)) text_ = text->text;
    changed_.notify_all();
    return size_t{1};
  }
  void set(Answer answer) {
    const std::lock_guard lock(mutex_);
    answer_ = answer;
    changed_.notify_all();
  }
  void cancel() {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    changed_.notify_all();
  }
  bool wait_for_steps(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return steps_.size() >= count; });
  }
  bool wait_for_calls(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return calls_ >= count; });
  }
  std::vector<int64_t> steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_ = Answer::kOk;
  bool is_cancelled_ = false;
  int calls_ = 0;
  std::vector<int64_t> steps_;
  std::string text_;  // the last one
};

class FakeSink : public Sink {
 public:
  explicit FakeSink(std::shared_ptr<FakeServer> server) : server_(std::move(server)) {}
  std::string_view name() const override { return "fake"; }
  bool is_remote() const override { return true; }
  Result<size_t> write(std::span<const Event> events) override { return server_->receive(events); }
  void cancel() override { server_->cancel(); }

 protected:
  std::shared_ptr<FakeServer> server_;
};

template <typename SinkType = FakeSink>
std::unique_ptr<Tracker> make_tracker(const fs::path& directory, const std::shared_ptr<FakeServer>& server,
                                      std::chrono::milliseconds claim_interval = kClaimInterval,
                                      const Logger& logger = Logger::silent()) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<SinkType>(server));
  return std::make_unique<Tracker>(
      TrackerOptions{.directory = directory, .first_retry = 5ms, .max_retry = 50ms, .claim_interval = claim_interval},
      std::move(sinks), logger);
}

std::unique_ptr<Tracker> make_logging_tracker(const fs::path& directory, const std::shared_ptr<FakeServer>& server) {
  return make_tracker(directory, server, kClaimInterval, Logger(LogFormat::kText, LogLevel::kInfo));
}

TEST(Tracker, DeliversInOrder) {
  const TemporaryDirectory directory;
  const auto server = std::make_shared<FakeServer>();
  const std::unique_ptr<Tracker> tracker = make_tracker(directory.path(), server);
  for (int64_t step = 1; step <= 5; ++step) tracker->add(scalar_at(step));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1, 2, 3, 4, 5));
}

TEST(Tracker, RepeatsUntilTheServerAnswers) {
  const TemporaryDirectory directory;
  const auto server = std::make_shared<FakeServer>();
  server->set(FakeServer::Answer::kFails);
  const std::unique_ptr<Tracker> tracker = make_tracker(directory.path(), server);
  tracker->add(scalar_at(1));
  ASSERT_TRUE(server->wait_for_calls(3));
  EXPECT_THAT(server->steps(), IsEmpty());
  server->set(FakeServer::Answer::kOk);
  EXPECT_TRUE(server->wait_for_steps(1));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1));
}

TEST(Tracker, LeavesUndeliveredEventsToTheNextProcess) {
  const TemporaryDirectory directory;
  const auto down = std::make_shared<FakeServer>();
  down->set(FakeServer::Answer::kFails);
  std::unique_ptr<Tracker> tracker = make_tracker(directory.path(), down);
  tracker->add(scalar_at(1));
  tracker->add(scalar_at(2));
  EXPECT_TRUE(tracker->persist(kPatience));
  tracker->finish(0ms);
  const auto up = std::make_shared<FakeServer>();
  tracker = make_tracker(directory.path(), up);
  tracker->add(scalar_at(3));
  tracker->finish(kPatience);
  EXPECT_THAT(up->steps(), ElementsAre(1, 2, 3));
}

TEST(Tracker, DropsARejectedEventOnly) {
  const TemporaryDirectory directory;
  const auto server = std::make_shared<FakeServer>();
  server->set(FakeServer::Answer::kRejects);
  const std::unique_ptr<Tracker> tracker = make_tracker(directory.path(), server);
  for (int64_t step = 1; step <= 3; ++step) tracker->add(scalar_at(step));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1, 3));
}

TEST(Tracker, DoesNotWaitForAServerThatHangs) {
  const TemporaryDirectory directory;
  const auto server = std::make_shared<FakeServer>();
  server->set(FakeServer::Answer::kHangs);
  const std::unique_ptr<Tracker> tracker = make_tracker(directory.path(), server);
  tracker->add(scalar_at(1));
  ASSERT_TRUE(server->wait_for_calls(1));
  for (int64_t step = 2; step <= 1000; ++step) tracker->add(scalar_at(step));
  EXPECT_TRUE(tracker->persist(kPatience));
  tracker->finish(50ms);  // cancels the request
  EXPECT_THAT(server->steps(), IsEmpty());
}

TEST(Tracker, WorksWithoutADirectory) {
  const auto server = std::make_shared<FakeServer>();
  const std::unique_ptr<Tracker> tracker = make_tracker("", server);
  tracker->add(scalar_at(1));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1));
}

TEST(Tracker, LaterProcessTakesOver) {
  const TemporaryDirectory directory;
  const auto hangs = std::make_shared<FakeServer>();
  hangs->set(FakeServer::Answer::kHangs);
  const std::unique_ptr<Tracker> earlier = make_tracker(directory.path(), hangs);
  earlier->add(scalar_at(1));
  ASSERT_TRUE(hangs->wait_for_calls(1));
  EXPECT_TRUE(earlier->persist(kPatience));
  // Two processes at the same time: the earlier one cancels its request, and the later one delivers from the journal.
  const auto up = std::make_shared<FakeServer>();
  const std::unique_ptr<Tracker> later = make_tracker(directory.path(), up);
  later->add(scalar_at(2));
  ASSERT_TRUE(up->wait_for_steps(2));
  earlier->add(scalar_at(3));
  EXPECT_TRUE(earlier->persist(kPatience));  // discards the point
  later->finish(kPatience);
  earlier->finish(kPatience);
  EXPECT_THAT(up->steps(), ElementsAre(1, 2));
  EXPECT_THAT(hangs->steps(), IsEmpty());
}

// A sink that writes files, of which the number of writes is of interest.
class CountingSink final : public Sink {
 public:
  explicit CountingSink(std::shared_ptr<std::vector<size_t>> sizes) : sizes_(std::move(sizes)) {}
  std::string_view name() const override { return "counting"; }
  bool is_remote() const override { return false; }
  Result<size_t> write(std::span<const Event> events) override {
    sizes_->push_back(events.size());
    return events.size();
  }

 private:
  std::shared_ptr<std::vector<size_t>> sizes_;
};

TEST(Tracker, WritesThePointsOfAnIntervalTogether) {
  const auto sizes = std::make_shared<std::vector<size_t>>();
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<CountingSink>(sizes));
  Tracker tracker({.directory = "", .batch_interval = 1h}, std::move(sinks), Logger::silent());
  for (int64_t step = 1; step <= 3; ++step) tracker.add(scalar_at(step));
  EXPECT_TRUE(tracker.persist(kPatience));
  tracker.add(scalar_at(4));
  tracker.finish(kPatience);
  EXPECT_THAT(*sizes, ElementsAre(3, 1));
}

// A sink that writes files, and counts the points that would survive a failure of the node.
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

TEST(Tracker, ReportsADirectoryThatCannotBeClaimed) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "tracking";
  std::ofstream(path) << "a file";
  testing::internal::CaptureStderr();
  const auto sizes = std::make_shared<std::vector<size_t>>();
  {
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<CountingSink>(sizes));
    Tracker tracker({.directory = path}, std::move(sinks), Logger(LogFormat::kText, LogLevel::kInfo));
    tracker.add(scalar_at(1));
    tracker.finish(kPatience);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(log, "tracking: the directory cannot be claimed"), 1) << log;
  EXPECT_THAT(log, testing::HasSubstr(path.string()));
  EXPECT_THAT(*sizes, ElementsAre(1));
}

// As if an earlier process were on another machine, on a file system with locks that are valid on one machine only.
void hide_owner(const fs::path& directory) {
  nlohmann::json owner = nlohmann::json::parse(*read_file(directory / "owner.json"));
  owner["machine"] = "another";
  ASSERT_TRUE(write_file_atomically(directory / "owner.json", owner.dump()));
  fs::remove(directory / ".lock");
}

// finish() does not wait longer than a few seconds for a disk.
void wait_for_release(const fs::path& directory) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!fs::exists(directory / "released.json") && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
}

// One of two processes that share a server.
class SharingSink final : public FakeSink {
 public:
  using FakeSink::FakeSink;
  void cancel() override {}
};

TEST(Tracker, EarlierProcessWithoutSharedLocksStops) {
  const TemporaryDirectory directory;
  const auto server = std::make_shared<FakeServer>();
  constexpr int64_t kLater = 10'000'000;
  const std::unique_ptr<Tracker> earlier = make_tracker<SharingSink>(directory.path(), server, kDefaultClaimInterval);
  earlier->add(scalar_at(1));
  ASSERT_TRUE(server->wait_for_steps(1));
  hide_owner(directory.path());
  const std::unique_ptr<Tracker> later = make_tracker<SharingSink>(directory.path(), server, kDefaultClaimInterval);
  later->add(scalar_at(kLater));
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (int64_t step = 2; server->steps().back() < kLater && std::chrono::steady_clock::now() < end; ++step) {
    earlier->add(scalar_at(step));
    EXPECT_TRUE(earlier->persist(kPatience));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(later->wait_for_delivery(kPatience));
  for (int64_t step = kLater; step < kLater + 10; ++step) earlier->add(scalar_at(step));
  earlier->finish(kPatience);
  later->finish(kPatience);
  const std::vector<int64_t> steps = server->steps();
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  // An event whose delivery the earlier process had not recorded yet is repeated.
  EXPECT_GE(std::set<int64_t>(steps.begin(), steps.end()).size() + 1, steps.size());
  EXPECT_EQ(steps.back(), kLater);
}

TEST(Tracker, WaitsUntilAProcessOfAnotherMachineHasReadTheClaim) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "owner.json") << R"({"process": "killed", "machine": "another"})";
  const auto server = std::make_shared<FakeServer>();
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Tracker> tracker = make_tracker(directory.path(), server);
  tracker->add(scalar_at(1));
  ASSERT_TRUE(server->wait_for_steps(1));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 4 * kClaimInterval);
}

TEST(Tracker, ReportsAShortRunAfterAProcessOfAnotherMachineWasKilled) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "owner.json") << R"({"process": "killed", "machine": "another"})";
  const auto down = std::make_shared<FakeServer>();
  down->set(FakeServer::Answer::kFails);
  const std::unique_ptr<Tracker> tracker = make_tracker(directory.path(), down);
  tracker->add(scalar_at(1));
  tracker->finish(0ms);
  wait_for_release(directory.path());
  const auto server = std::make_shared<FakeServer>();
  make_tracker(directory.path(), server)->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1));
}

TEST(Tracker, BeginsImmediatelyAfterAProcessOfAnotherMachineHasEnded) {
  const TemporaryDirectory directory;
  const std::unique_ptr<Tracker> earlier = make_tracker(directory.path(), std::make_shared<FakeServer>());
  earlier->finish(kPatience);
  wait_for_release(directory.path());
  hide_owner(directory.path());
  std::vector<std::unique_ptr<Sink>> sinks;
  const auto server = std::make_shared<FakeServer>();
  sinks.push_back(std::make_unique<FakeSink>(server));
  Tracker tracker({.directory = directory.path(), .claim_interval = 1h}, std::move(sinks), Logger::silent());
  tracker.add(scalar_at(1));
  EXPECT_TRUE(server->wait_for_steps(1));
}

TEST(Tracker, CutsLongTextsAndDropsLargeImages) {
  const TemporaryDirectory directory;
  const auto server = std::make_shared<FakeServer>();
  const std::unique_ptr<Tracker> tracker = make_tracker(directory.path(), server);
  Event text = scalar_at(1);
  std::string content = "a";
  while (content.size() <= kMaxTextBytes) content += "\u00e9";  // its last character would be cut in the middle
  text.content = Text{"samples", content};
  tracker->add(text);
  Event image = scalar_at(2);
  image.content = Image{"images", 1, 1, std::string(kMaxImageBytes + 1, 'x')};
  tracker->add(image);
  tracker->add(scalar_at(3));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1, 3));
  const std::string delivered = server->text();
  EXPECT_EQ(delivered.substr(0, kMaxTextBytes - 1), content.substr(0, kMaxTextBytes - 1));
  EXPECT_THAT(delivered.substr(kMaxTextBytes - 1),
              testing::HasSubstr(fmt::format("the first {} of {} bytes", kMaxTextBytes - 1, content.size())));
}

}  // namespace
}  // namespace oarlock
