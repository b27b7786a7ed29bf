// Logs go to stderr, so the test captures it and reads the lines as a machine would.
#include "common/log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace oarlock {
namespace {

std::string captured(const std::function<void()>& act) {
  testing::internal::CaptureStderr();
  act();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, JsonLinesEscapeAnyText) {
  const std::string out = captured([] {
    const Logger log = Logger(LogFormat::kJson, LogLevel::kInfo).with({{"job", "a\"b"}});
    log.info("line\none \xff", {{"step", 7}, {"loss", 0.5}, {"done", true}, {"bad", std::nan("")}});
    log.debug("not shown");
  });
  ASSERT_EQ(std::count(out.begin(), out.end(), '\n'), 1) << out;
  const auto json = nlohmann::json::parse(out);
  EXPECT_EQ(json["level"], "info");
  EXPECT_EQ(json["job"], "a\"b");
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["loss"], 0.5);
  EXPECT_EQ(json["done"], true);
  EXPECT_EQ(json["bad"], "nan");
  EXPECT_TRUE(json["ts"].get<std::string>().ends_with("Z"));
}

TEST(Log, TextLinesHavePrefix) {
  const std::string out = captured(
      [] { Logger(LogFormat::kText, LogLevel::kWarn, "RANK 3").warn("slow", {{"seconds", 2}, {"who", "a b"}}); });
  EXPECT_TRUE(out.starts_with("[RANK 3] ")) << out;
  EXPECT_NE(out.find(" WARN slow seconds=2 who=\"a b\"\n"), std::string::npos) << out;
}

TEST(Log, LongTextsAreAbridged) {
  const std::string text(1'000'000, 'x');
  for (const LogFormat format : {LogFormat::kJson, LogFormat::kText}) {
    const std::string out = captured([&] { Logger(format, LogLevel::kInfo).warn(text + "y", {{"reason", text}}); });
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
    EXPECT_LT(out.size(), 5000u);
    EXPECT_NE(out.find("xy"), std::string::npos);
  }
}

TEST(Log, SilentWritesNothing) {
  EXPECT_EQ(captured([] { Logger::silent().error("x"); }), "");
}

TEST(Log, RejectsUnknownLevelWithChoices) {
  EXPECT_EQ(log_level_from("warn"), LogLevel::kWarn);
  EXPECT_NE(log_level_from("loud").error().message.find("debug, info, warn, error"), std::string::npos);
}

}  // namespace
}  // namespace oarlock
