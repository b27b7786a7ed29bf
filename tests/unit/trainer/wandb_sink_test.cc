#include "trainer/tracking/sink.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/files.h"
#include "tests/support/full_disk.h"
#include "tests/support/temporary_directory.h"
#include "trainer/tracking/wandb_file.h"
#include "trainer/tracking/wandb_history.h"

namespace oarlock {
namespace {

TEST(WandbSink, DirectoriesHaveTheOrderOfTheAttempts) {
  const test::TemporaryDirectory directory;
  const RealClock clock;
  WandbSettings settings;
  settings.run_id = "id-7";
  std::set<std::string> names;  // as `wandb sync offline-run-*` sorts them
  std::string last;
  // The clocks of the later machines are behind that of the first one.
  for (const int seconds : {1700000000, 1699999970, 1699999000, 1700000100}) {
    const SinkContext context{.directory = directory.path() / "tracking", .logger = Logger::silent(), .clock = clock};
    const std::unique_ptr<Sink> sink = make_wandb_sink(settings, context);
    const Event event{.time = SystemTime(std::chrono::seconds(seconds)), .step = 0, .content = RunStarted{}};
    const Result<size_t> written = sink->write(std::vector<Event>{event});
    ASSERT_TRUE(written) << written.error().message;
    const size_t before = names.size();
    for (const auto& entry : std::filesystem::directory_iterator(directory.path() / "wandb"))
      names.insert(entry.path().filename().string());
    ASSERT_EQ(names.size(), before + 1);
    EXPECT_GT(*names.rbegin(), last);
    last = *names.rbegin();
  }
  EXPECT_THAT(names, testing::ElementsAre("offline-run-20231114_221320-id-7", "offline-run-20231114_221321-id-7",
                                          "offline-run-20231114_221322-id-7", "offline-run-20231114_221500-id-7"));
}

class WandbSinkTest : public testing::Test {
 protected:
  WandbSinkTest() { settings_.run_id = "id-7"; }

  std::unique_ptr<Sink> make_sink() const {
    const SinkContext context{.directory = directory_.path() / "tracking", .logger = Logger::silent(), .clock = clock_};
    return make_wandb_sink(settings_, context);
  }

  static Event event(int64_t step, decltype(Event::content) content) {
    return {.time = SystemTime(std::chrono::seconds(1700000000)), .step = step, .content = std::move(content)};
  }
  static Event loss_at(int64_t step) { return event(step, Scalars{{{"loss", 0.5}}}); }
  static Event finished_at(int64_t step) {
    return event(
        step,
        RunFinished{
            .success = true, .resumes = false, .reason = "Completed", .message = "", .summary = {}, .time_table = ""});
  }

  static bool write(Sink& sink, const std::vector<Event>& events) { return sink.write(events).has_value(); }

  // The run directories in the order of their upload.
  std::vector<std::filesystem::path> directories() const {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path() / "wandb"))
      out.push_back(entry.path());
    std::sort(out.begin(), out.end());
    return out;
  }

  std::filesystem::path log_path() const { return directories().at(0) / "run-id-7.wandb"; }

  // The records of a log, which must be complete and numbered from 1. Those of the history begin with its field.
  static std::vector<std::string> numbered_records(const std::filesystem::path& path) {
    const Result<std::string> content = read_file(path);
    EXPECT_TRUE(content);
    std::string_view left = *content;
    std::vector<std::string> out;
    std::string complete = wandb_header();
    const WandbLogEnd end = read_wandb_log(source_of(left), [&](std::string_view record) {
      complete += frame_wandb_record(record, complete.size());
      const std::string number = number_wandb_record(static_cast<int64_t>(out.size()) + 1, "");
      EXPECT_TRUE(record.starts_with(number));
      out.emplace_back(record.substr(number.size()));
    });
    EXPECT_TRUE(end.has_header);
    EXPECT_FALSE(end.is_cut);
    EXPECT_EQ(end.offset, content->size());
    EXPECT_EQ(end.records, out.size());
    EXPECT_TRUE(*content == complete) << "an incomplete record";
    return out;
  }

  // The steps of the rows of the history.
  static std::vector<int64_t> row_steps(const std::filesystem::path& path) {
    constexpr char kHistory = (2 << 3) | 2;
    const std::string key("_step\x82\x01", 7);  // and the field of its value, after which comes the length
    std::vector<int64_t> out;
    for (const std::string& record : numbered_records(path)) {
      if (record.front() != kHistory) continue;
      const size_t place = record.find(key) + key.size();
      out.push_back(std::stoll(record.substr(place + 1, static_cast<size_t>(record.at(place)))));
    }
    return out;
  }

  RealClock clock_;
  test::TemporaryDirectory directory_;
  WandbSettings settings_;
};

TEST_F(WandbSinkTest, LosesNothingWhileTheDiskIsFull) {
  const std::unique_ptr<Sink> sink = make_sink();
  ASSERT_TRUE(write(*sink, {event(0, RunStarted{}), loss_at(1), loss_at(2)}));
  {
    const test::FullDisk full(std::filesystem::file_size(log_path()) + 50);
    EXPECT_FALSE(write(*sink, {loss_at(3), loss_at(4)}));
    EXPECT_FALSE(write(*sink, {loss_at(5)}));
  }
  EXPECT_THAT(row_steps(log_path()), testing::ElementsAre(1));
  ASSERT_TRUE(write(*sink, {loss_at(6)}));
  ASSERT_TRUE(write(*sink, {loss_at(7), finished_at(7)}));
  EXPECT_EQ(directories().size(), 1);
  EXPECT_THAT(row_steps(log_path()), testing::ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST_F(WandbSinkTest, StartsAfterAFullDisk) {
  settings_.run_id.clear();  // a random one, which is kept for the next attempt
  const std::unique_ptr<Sink> sink = make_sink();
  {
    const test::FullDisk full(0);
    EXPECT_FALSE(write(*sink, {event(0, RunStarted{}), loss_at(1)}));
    EXPECT_FALSE(write(*sink, {loss_at(2)}));
    EXPECT_THAT(directories(), testing::IsEmpty());  // for which `wandb sync` would fail
  }
  ASSERT_TRUE(write(*sink, {loss_at(3), finished_at(3)}));
  ASSERT_EQ(directories().size(), 1);
  const std::string id =
      nlohmann::json::parse(*read_file(directory_.path() / "tracking" / "wandb.json")).at("run_id").get<std::string>();
  EXPECT_THAT(directories().at(0).filename().string(), testing::EndsWith("-" + id));
  EXPECT_THAT(row_steps(directories().at(0) / ("run-" + id + ".wandb")), testing::ElementsAre(1, 2, 3));
  EXPECT_TRUE(std::filesystem::exists(directories().at(0) / "files" / "config.yaml"));
}

TEST_F(WandbSinkTest, StartsWhenTheDirectoryCanBeCreated) {
  std::ofstream(directory_.path() / "wandb") << "a file";
  const std::unique_ptr<Sink> sink = make_sink();
  const Result<size_t> failed = sink->write(std::vector<Event>{event(0, RunStarted{}), loss_at(1)});
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, testing::HasSubstr((directory_.path() / "wandb").string()));
  std::filesystem::remove(directory_.path() / "wandb");
  ASSERT_TRUE(write(*sink, {loss_at(2), finished_at(2)}));
  EXPECT_THAT(row_steps(log_path()), testing::ElementsAre(1, 2));
}

// As many files as fit into the memory limit wait, and the oldest ones are kept.
TEST_F(WandbSinkTest, ImagesWaitWhileTheDiskIsFull) {
  const auto image_at = [](int64_t step, size_t size) {
    return event(step, Image{.name = "eval/images", .width = 1, .height = 1, .png = std::string(size, 'x')});
  };
  const auto media_sizes = [&] {
    std::vector<uintmax_t> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directories().at(0) / "files" / "media"))
      if (entry.is_regular_file()) out.push_back(entry.file_size());
    std::sort(out.begin(), out.end());
    return out;
  };
  constexpr size_t kMebibyte = size_t{1} << 20;
  const std::unique_ptr<Sink> sink = make_sink();
  ASSERT_TRUE(write(*sink, {event(0, RunStarted{}), loss_at(1), image_at(1, 100), loss_at(2)}));
  {
    const test::FullDisk full(std::filesystem::file_size(log_path()) + 50);
    EXPECT_FALSE(write(*sink, {image_at(2, kMebibyte), loss_at(3), image_at(3, 2 * kMebibyte), loss_at(4)}));
    EXPECT_FALSE(write(*sink, {image_at(4, 2 * kMebibyte), loss_at(5), image_at(5, kMebibyte - 1), loss_at(6)}));
    EXPECT_FALSE(sink->flush());
    EXPECT_FALSE(write(*sink, {image_at(6, 2 * kMebibyte), loss_at(7)}));
  }
  EXPECT_THAT(media_sizes(), testing::ElementsAre(100));
  ASSERT_TRUE(sink->flush());
  EXPECT_THAT(media_sizes(), testing::ElementsAre(100, kMebibyte - 1, kMebibyte, 2 * kMebibyte));
  ASSERT_TRUE(write(*sink, {finished_at(7)}));
  EXPECT_THAT(row_steps(log_path()), testing::ElementsAre(1, 2, 3, 4, 5, 6, 7));
  // Of the images in the rows, each has a file, and a record by which it is uploaded.
  std::map<int64_t, int> mentions;
  for (const std::string& record : numbered_records(log_path())) {
    for (const int64_t step : {1, 2, 3, 4, 5, 6})
      mentions[step] += record.find(fmt::format("media/images/eval/images_{}_", step)) != std::string::npos ? 1 : 0;
  }
  for (const int64_t step : {1, 2, 3, 5}) EXPECT_GE(mentions[step], 2) << step;
  for (const int64_t step : {4, 6}) EXPECT_EQ(mentions[step], 0) << step;
}

TEST_F(WandbSinkTest, WritesTheEndOfTheRunWhenThereIsSpace) {
  const std::unique_ptr<Sink> sink = make_sink();
  ASSERT_TRUE(write(*sink, {event(0, RunStarted{}), loss_at(1), loss_at(2)}));
  {
    const test::FullDisk full(std::filesystem::file_size(log_path()) + 50);
    EXPECT_FALSE(write(*sink, {loss_at(3), finished_at(3)}));
  }
  ASSERT_TRUE(sink->flush());
  EXPECT_THAT(row_steps(log_path()), testing::ElementsAre(1, 2, 3));
  EXPECT_TRUE(std::filesystem::exists(directories().at(0) / "files" / "wandb-summary.json"));
}

// A log without a complete record is removed, and an incomplete record at the end of another one is cut off.
TEST_F(WandbSinkTest, RepairsTheLogOfAKilledAttempt) {
  ASSERT_TRUE(write(*make_sink(), {event(0, RunStarted{}), loss_at(1), loss_at(2), loss_at(3)}));
  const std::filesystem::path killed = directories().at(0);
  const Result<std::string> whole = read_file(log_path());
  ASSERT_TRUE(whole);
  constexpr size_t kBetweenCuts = 61;
  bool was_removed = false;
  for (size_t size = 0; size < whole->size(); size += size < 8 ? 1 : kBetweenCuts) {
    SCOPED_TRACE(testing::Message() << size << " of " << whole->size() << " bytes");
    std::filesystem::remove_all(directory_.path() / "wandb");
    std::filesystem::create_directories(killed);
    std::ofstream(killed / "run-id-7.wandb") << whole->substr(0, size);
    std::ofstream(killed / "run-id-7.wandb.new") << "of a process that was killed earlier";
    ASSERT_TRUE(write(*make_sink(), {event(2, RunStarted{}), loss_at(4), finished_at(4)}));
    EXPECT_FALSE(std::filesystem::exists(killed / "run-id-7.wandb.new"));
    was_removed = directories().size() == 1;
    for (const std::filesystem::path& attempt : directories())
      EXPECT_THAT(numbered_records(attempt / "run-id-7.wandb"), testing::Not(testing::IsEmpty()));
  }
  EXPECT_FALSE(was_removed) << "the last cut has records";
}

// The file of the current row reached the disk before the node failed, and the end of the log did not.
TEST_F(WandbSinkTest, RepeatsRowsThatWereLostWithTheNode) {
  uintmax_t synced = 0;
  {
    const std::unique_ptr<Sink> sink = make_sink();
    ASSERT_TRUE(write(*sink, {event(0, RunStarted{}), loss_at(1), loss_at(2)}));
    ASSERT_TRUE(sink->sync());  // of a checkpoint after step 2
    synced = std::filesystem::file_size(log_path());
    ASSERT_TRUE(write(*sink, {loss_at(3), loss_at(4)}));
  }
  std::filesystem::resize_file(log_path(), synced);
  RunStarted again;
  again.restart_step = 2;
  ASSERT_TRUE(write(*make_sink(), {event(2, again), loss_at(3), loss_at(4), finished_at(4)}));
  std::vector<int64_t> steps;
  for (const std::filesystem::path& attempt : directories()) {
    const std::vector<int64_t> of_attempt = row_steps(attempt / "run-id-7.wandb");
    steps.insert(steps.end(), of_attempt.begin(), of_attempt.end());
  }
  EXPECT_THAT(steps, testing::ElementsAre(1, 2, 3, 4));
}

// Each write of the sink adds an entry to the file of the current row.
TEST(WandbRowFile, TheLastCompleteEntryCounts) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "row.json";
  const auto state_at = [](int64_t step) {
    return WandbRowState{.run_id = "id-7",
                         .last_row_step = step - 1,
                         .row = {.step = step, .time = SystemTime(std::chrono::seconds(step)), .items = {{"a", "1"}}}};
  };
  const auto step = [&]() -> int64_t {
    const Result<std::optional<WandbRowState>> state = WandbRowFile::load(path);
    EXPECT_TRUE(state) << state.error().message;
    return state && *state ? (*state)->row.step : -1;
  };
  EXPECT_FALSE(WandbRowFile::load(path));
  WandbRowFile file(path);
  ASSERT_TRUE(file.save(state_at(1)));
  const uintmax_t first_end = std::filesystem::file_size(path);
  ASSERT_TRUE(file.save(state_at(2)));
  const uintmax_t second_end = std::filesystem::file_size(path);
  {
    const test::FullDisk full(second_end + 20);
    EXPECT_FALSE(file.save(state_at(3)));
  }
  EXPECT_EQ(step(), 2);
  ASSERT_TRUE(file.save(state_at(4)));
  const Result<std::optional<WandbRowState>> last = WandbRowFile::load(path);
  ASSERT_TRUE(last && *last);
  EXPECT_EQ((*last)->run_id, "id-7");
  EXPECT_EQ((*last)->last_row_step, 3);
  EXPECT_EQ((*last)->row.time, SystemTime(std::chrono::seconds(4)));
  EXPECT_THAT((*last)->row.items, testing::ElementsAre(testing::Pair("a", "1")));
  // As after the end of a process or of a node in the middle of an entry.
  for (uintmax_t size = std::filesystem::file_size(path) - 1; size > 0; --size) {
    std::filesystem::resize_file(path, size);
    EXPECT_EQ(step(), size >= second_end ? 2 : size >= first_end ? 1 : -1) << size;
  }
  WandbRowFile next(path);  // of the next process
  ASSERT_TRUE(next.save(state_at(5)));
  ASSERT_TRUE(file.save(state_at(6)));  // of the earlier one, which is without effect
  EXPECT_EQ(step(), 5);
  for (int64_t i = 6; i < 10000; ++i) ASSERT_TRUE(next.save(state_at(i)));
  EXPECT_EQ(step(), 9999);
  EXPECT_LT(std::filesystem::file_size(path), size_t{1} << 20);
}

// A process that is killed while rows wait must not have recorded them as delivered.
TEST_F(WandbSinkTest, RowsThatWaitAreRepeatedAfterAKill) {
  {
    const std::unique_ptr<Sink> sink = make_sink();
    ASSERT_TRUE(write(*sink, {event(0, RunStarted{}), loss_at(1), loss_at(2)}));
    const test::FullDisk full(std::filesystem::file_size(log_path()) + 50);
    EXPECT_FALSE(write(*sink, {loss_at(3), loss_at(4), loss_at(5)}));
  }
  RunStarted run;
  run.restart_step = 2;
  ASSERT_TRUE(write(*make_sink(), {event(2, run), loss_at(3), loss_at(4), loss_at(5), finished_at(5)}));
  ASSERT_EQ(directories().size(), 2);
  EXPECT_THAT(row_steps(log_path()), testing::ElementsAre(1));
  EXPECT_THAT(row_steps(directories().at(1) / "run-id-7.wandb"), testing::ElementsAre(2, 3, 4, 5));
}

// Jumps of the clock in an attempt and between two: the runtime does not decrease, and does not contain years.
TEST_F(WandbSinkTest, RuntimeSurvivesJumpsOfTheClock) {
  const auto at = [](Event out, int64_t seconds) {
    out.time = SystemTime(std::chrono::seconds(seconds));
    return out;
  };
  const auto newest = [&](const std::string& key) {
    WandbContents contents;
    for (const std::filesystem::path& directory : directories()) {
      const Result<std::string> content = read_file(directory / "run-id-7.wandb");
      std::string_view left = *content;
      read_wandb_contents(source_of(left), contents);
    }
    return contents.newest.at(key).value_json;
  };
  RunStarted run;
  constexpr int64_t kNow = 1700000000, kBehind = 100;
  ASSERT_TRUE(write(*make_sink(), {at(event(0, run), kNow), at(loss_at(1), kNow + 10), at(loss_at(2), kNow - 5),
                                   at(loss_at(3), kNow + 20), at(finished_at(3), kNow + 20)}));
  EXPECT_EQ(newest("_runtime"), "35");
  run.restart_step = 3;
  ASSERT_TRUE(
      write(*make_sink(), {at(event(3, run), kBehind), at(loss_at(4), kBehind + 7), at(finished_at(4), kBehind + 8)}));
  EXPECT_EQ(newest("_runtime"), "42");
  run.restart_step = 4;
  ASSERT_TRUE(
      write(*make_sink(), {at(event(4, run), kNow + 50), at(loss_at(5), kNow + 58), at(finished_at(5), kNow + 58)}));
  EXPECT_EQ(newest("_runtime"), "50");
  EXPECT_EQ(newest("_step"), "5");
  EXPECT_EQ(directories().size(), 3);
}

TEST_F(WandbSinkTest, ReplacesBytesThatAreNotUtf8) {
  settings_.notes = settings_.name = settings_.group = "caf\xe9";
  settings_.tags = {"caf\xe9"};
  RunStarted run;
  run.task = run.job = "caf\xe9";
  run.versions = {{"oarlock", "caf\xe9"}};
  run.config = {{"key", "caf\xe9"}};
  const auto value_at = [](int64_t step) { return event(step, Scalars{{{"caf\xe9", 0.5}}}); };
  ASSERT_TRUE(write(*make_sink(),
                    {event(0, run), value_at(1), value_at(2), event(2, Text{"text\xe9", "caf\xe9"}), finished_at(2)}));
  std::string content = *read_file(log_path());
  EXPECT_EQ(content.find("caf\xe9"), std::string::npos);
  EXPECT_EQ(content.find("text\xe9"), std::string::npos);
  EXPECT_NE(content.find("caf\uFFFD"), std::string::npos);
  ASSERT_TRUE(write(*make_sink(), {event(2, run), value_at(2), value_at(3), finished_at(3)}));
  EXPECT_THAT(row_steps(directories().at(1) / "run-id-7.wandb"), testing::ElementsAre(3));  // the name is known
}

TEST_F(WandbSinkTest, AcceptsLargeSteps) {
  constexpr int64_t kLarge = int64_t{1} << 40;
  ASSERT_TRUE(write(*make_sink(), {event(0, RunStarted{}), loss_at(1), loss_at(kLarge), finished_at(kLarge)}));
  EXPECT_THAT(row_steps(log_path()), testing::ElementsAre(1, kLarge));
  ASSERT_TRUE(write(*make_sink(),
                    {event(kLarge, RunStarted{}), loss_at(kLarge), loss_at(kLarge + 1), finished_at(kLarge + 1)}));
  EXPECT_THAT(row_steps(directories().at(1) / "run-id-7.wandb"), testing::ElementsAre(kLarge + 1));
}

TEST_F(WandbSinkTest, ReplacesPipesAndLinks) {
  for (const bool is_pipe : {true, false}) {
    const std::filesystem::path tracking = directory_.path() / "tracking";
    std::filesystem::remove_all(tracking);
    std::filesystem::remove_all(directory_.path() / "wandb");
    std::filesystem::create_directories(tracking);
    const std::filesystem::path earlier = directory_.path() / "wandb" / "offline-run-20200101_000000-id-7";
    std::filesystem::create_directories(earlier);
    std::ofstream(directory_.path() / "target") << "content";
    for (const std::filesystem::path& path : {tracking / "wandb.json", tracking / "wandb-row.json",
                                              tracking / "wandb-row.json.new", earlier / "run-id-7.wandb"}) {
      if (is_pipe) {
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
      } else {
        std::filesystem::create_symlink(directory_.path() / "target", path);
      }
    }
    const std::unique_ptr<Sink> sink = make_sink();
    ASSERT_TRUE(write(*sink, {event(0, RunStarted{}), loss_at(1), loss_at(2)}));
    ASSERT_TRUE(write(*sink, {finished_at(2)}));
    ASSERT_EQ(directories().size(), 2);
    EXPECT_THAT(row_steps(directories().at(1) / "run-id-7.wandb"), testing::ElementsAre(1, 2));
    EXPECT_EQ(*read_file(directory_.path() / "target"), "content");
    for (const char* name : {"wandb.json", "wandb-row.json"})
      EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(tracking / name))) << name;
  }
}

TEST_F(WandbSinkTest, ReportsWithoutADirectoryForItsState) {
  std::ofstream(directory_.path() / "tracking") << "a file";
  ASSERT_TRUE(write(*make_sink(), {event(0, RunStarted{}), loss_at(1), loss_at(2), finished_at(2)}));
  EXPECT_THAT(row_steps(log_path()), testing::ElementsAre(1, 2));
}

}  // namespace
}  // namespace oarlock
