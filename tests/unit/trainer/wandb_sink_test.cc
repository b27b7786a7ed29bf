#include "trainer/tracking/wandb_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "trainer/tracking/wandb_file.h"
#include "trainer/tracking/wandb_values.h"

namespace oarlock {
namespace {

TrackingVariables variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](std::string_view name) -> std::optional<std::string> {
    const auto value = values.find(std::string(name));
    return value == values.end() ? std::nullopt : std::optional(value->second);
  };
}

std::vector<std::string> records_of(std::string_view content) {
  std::vector<std::string> out;
  EXPECT_TRUE(read_wandb_log(content, [&](std::string_view record) { out.emplace_back(record); }));
  return out;
}

TEST(WandbLog, ReadsWhatItFramed) {
  // Sizes around the ends of blocks, where a record has no data in its first fragment or padding precedes it.
  for (const size_t size :
       {0, 1, 32742, 32747, 32748, 32749, 32753, 32754, 32755, 32756, 32760, 32761, 32768, 200000}) {
    WandbLog log;
    std::string content = log.header();
    const std::vector<std::string> records = {std::string(size, 'a'), "b", "", std::string(40000, 'c')};
    for (const std::string& record : records) content += log.frame(record);
    EXPECT_EQ(records_of(content), records) << size;
  }
}

TEST(WandbLog, StopsAtDamage) {
  WandbLog log;
  std::string content = log.header() + log.frame("first");
  const size_t begin = content.size();
  content += log.frame(std::string(50000, 'x'));
  const size_t end = content.size();
  content += log.frame("last");
  for (size_t size = begin; size < end; size += 997) EXPECT_EQ(records_of(content.substr(0, size)).size(), 1) << size;
  for (const size_t place : {begin, begin + 4, begin + 6, begin + 100}) {
    std::string damaged = content;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x41);
    EXPECT_EQ(records_of(damaged), std::vector<std::string>{"first"}) << place;
  }
  EXPECT_FALSE(read_wandb_log("\x3aW&C\xe1\xbe", [](std::string_view) { FAIL(); }));
}

TEST(WandbRecords, AreReadBack) {
  WandbLog log;
  WandbRecords records("id7");
  WandbRun run;
  run.id = "id7";
  run.start_time = SystemTime(std::chrono::seconds(1700000000));
  std::string content = log.header() + log.frame(records.run(run));
  content += log.frame(records.history(3, {{"loss", "0.5"}, {"epoch", "1"}}));
  content += log.frame(records.preempting());
  content += log.frame(records.history(5, {{"loss", "NaN"}}));
  content += log.frame("not a message \xff\xff");
  content += log.frame(records.history(9, {{"loss", "1"}}));
  WandbContents contents;
  read_wandb_contents(content, contents);
  EXPECT_EQ(contents.run_id, "id7");
  EXPECT_EQ(contents.start_seconds, 1700000000);
  EXPECT_EQ(contents.newest, (std::map<std::string, WandbPoint>{{"epoch", {3, "1"}}, {"loss", {5, "NaN"}}}));
}

TEST(WandbSettings, KeysPrecedeVariables) {
  WandbConfig config;
  config.enabled = true;
  config.project = "of the key";
  const auto settings = resolve_wandb_settings(config, variables({{"WANDB_PROJECT", "of the variable"},
                                                                  {"WANDB_ENTITY", "team"},
                                                                  {"WANDB_RUN_ID", "r.1"},
                                                                  {"WANDB_TAGS", " a,, b c "},
                                                                  {"WANDB_DIR", "/somewhere"}}));
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->project, "of the key");
  EXPECT_EQ(settings->entity, "team");
  EXPECT_EQ(settings->run_id, "r.1");
  EXPECT_EQ(settings->dir, "/somewhere");
  EXPECT_EQ(settings->tags, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(settings->mode, WandbMode::kOffline);
  EXPECT_TRUE(is_wandb_enabled(config, *settings));
}

TEST(WandbSettings, ModeOfTheEnvironment) {
  WandbConfig config;
  config.enabled = true;
  const auto mode = [&](const std::string& value) {
    return resolve_wandb_settings(config, variables({{"WANDB_MODE", value}}));
  };
  EXPECT_EQ(mode("online")->mode, WandbMode::kOnline);
  EXPECT_FALSE(is_wandb_enabled(config, *mode("disabled")));
  ASSERT_FALSE(mode("onlin"));
  EXPECT_EQ(mode("onlin").error().code, ExitCode::kConfig);
  config.mode = WandbMode::kOffline;
  EXPECT_TRUE(is_wandb_enabled(config, *mode("disabled")));
  EXPECT_FALSE(resolve_wandb_settings(config, variables({{"WANDB_RUN_ID", "../x"}})));
}

TEST(WandbHistogram, HasAtMostTheBins) {
  Histogram histogram;
  histogram.name = "h";
  histogram.min = 0.5;
  histogram.max = 999.5;
  for (int i = 0; i < 1000; ++i) {
    histogram.limits.push_back(i + 1);
    histogram.counts.push_back(1);
  }
  const nlohmann::json value = nlohmann::json::parse(wandb_histogram(histogram, 512));
  EXPECT_EQ(value["values"].size(), 500);
  EXPECT_EQ(value["bins"].size(), 501);
  EXPECT_EQ(value["bins"].front(), 0.5);
  EXPECT_EQ(value["bins"].back(), 999.5);
  double sum = 0;
  for (const auto& count : value["values"]) sum += count.get<double>();
  EXPECT_EQ(sum, 1000);
  const nlohmann::json empty = nlohmann::json::parse(wandb_histogram({}));
  EXPECT_EQ(empty["bins"].size(), empty["values"].size() + 1);
}

TEST(WandbSink, FoldersHaveTheOrderOfTheAttempts) {
  const test::TemporaryFolder folder;
  const RealClock clock;
  WandbSettings settings;
  settings.run_id = "id-7";
  std::set<std::string> names;  // as `wandb sync offline-run-*` sorts them
  std::string last;
  // The clocks of the later machines are behind that of the first one.
  for (const int seconds : {1700000000, 1699999970, 1699999000, 1700000100}) {
    const SinkContext context{.folder = folder.path() / "tracking", .logger = Logger::silent(), .clock = clock};
    const std::unique_ptr<Sink> sink = make_wandb_sink(settings, context);
    const Event event{.time = SystemTime(std::chrono::seconds(seconds)), .step = 0, .content = RunStarted{}};
    const Result<size_t> written = sink->write(std::vector<Event>{event});
    ASSERT_TRUE(written) << written.error().message;
    const size_t before = names.size();
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "wandb"))
      names.insert(entry.path().filename().string());
    ASSERT_EQ(names.size(), before + 1);
    EXPECT_GT(*names.rbegin(), last);
    last = *names.rbegin();
  }
  EXPECT_THAT(names, testing::ElementsAre("offline-run-20231114_221320-id-7", "offline-run-20231114_221321-id-7",
                                          "offline-run-20231114_221322-id-7", "offline-run-20231114_221500-id-7"));
}

}  // namespace
}  // namespace oarlock
