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
#include "tests/unit/trainer/tracker_fixture.h"
#include "trainer/tracking/directory_claim.h"
#include "trainer/tracking/tracker.h"

namespace oarlock {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using test::count_of;
using test::FakeServer;
using test::FakeSink;
using test::kClaimInterval;
using test::kPatience;
using test::make_tracker;
using test::scalar_at;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::IsEmpty;

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
