// The file formats of W&B and its settings.
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

TrackingVariables variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](std::string_view name) -> std::optional<std::string> {
    const auto value = values.find(std::string(name));
    return value == values.end() ? std::nullopt : std::optional(value->second);
  };
}

std::vector<std::string> records_of(std::string_view content) {
  std::vector<std::string> out;
  EXPECT_TRUE(
      read_wandb_log(source_of(content), [&](std::string_view record) { out.emplace_back(record); }).has_header);
  return out;
}

TEST(WandbLog, ReadsWhatItFramed) {
  // Sizes around the ends of blocks, where a record has no data in its first fragment or padding precedes it.
  for (const size_t size :
       {0, 1, 32742, 32747, 32748, 32749, 32753, 32754, 32755, 32756, 32760, 32761, 32768, 200000}) {
    std::string content = wandb_header();
    const std::vector<std::string> records = {std::string(size, 'a'), "b", "", std::string(40000, 'c')};
    for (const std::string& record : records) content += frame_wandb_record(record, content.size());
    EXPECT_EQ(records_of(content), records) << size;
  }
}

TEST(WandbLog, StopsAtDamage) {
  std::string content = wandb_header();
  content += frame_wandb_record("first", content.size());
  const size_t begin = content.size();
  content += frame_wandb_record(std::string(50000, 'x'), content.size());
  const size_t end = content.size();
  content += frame_wandb_record("last", content.size());
  for (size_t size = begin; size < end; size += 997) EXPECT_EQ(records_of(content.substr(0, size)).size(), 1) << size;
  for (const size_t place : {begin, begin + 4, begin + 6, begin + 100}) {
    std::string damaged = content;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x41);
    EXPECT_EQ(records_of(damaged), std::vector<std::string>{"first"}) << place;
  }
  std::string_view other = "\x3aW&C\xe1\xbe";
  EXPECT_FALSE(read_wandb_log(source_of(other), [](std::string_view) { FAIL(); }).has_header);
}

TEST(WandbRecords, AreReadBack) {
  const WandbRecords records("id7");
  WandbRun run;
  run.id = "id7";
  run.start_time = SystemTime(std::chrono::seconds(1700000000));
  std::string content = wandb_header();
  for (const std::string& record : {records.run(run), records.history(3, {{"loss", "0.5"}, {"epoch", "1"}}),
                                    records.preempting(), number_wandb_record(4, records.history(5, {{"loss", "NaN"}})),
                                    std::string("not a message \xff\xff"), records.history(9, {{"loss", "1"}})})
    content += frame_wandb_record(record, content.size());
  WandbContents contents;
  std::string_view left = content;
  read_wandb_contents(source_of(left), contents);
  EXPECT_EQ(contents.run_id, "id7");
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
  // The names that wandb accepts, and no others.
  for (const char* online : {"run", "shared"}) EXPECT_EQ(mode(online)->mode, WandbMode::kOnline);
  for (const char* offline : {"", "offline", "dryrun"}) EXPECT_EQ(mode(offline)->mode, WandbMode::kOffline);
  for (const char* invalid : {"onlin", "OFFLINE", " offline", "offline\n", "true", "\xff"}) {
    ASSERT_FALSE(mode(invalid)) << invalid;
    EXPECT_EQ(mode(invalid).error().code, ExitCode::kConfig);
    EXPECT_THAT(mode(invalid).error().message, testing::HasSubstr("must be online, offline or disabled"));
    EXPECT_THAT(mode(invalid).error().message, testing::Not(testing::HasSubstr("\n")));
  }
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

}  // namespace
}  // namespace oarlock
