#include "operator/shell/unreadable_log.h"

#include <gmock/gmock.h>

#include "tests/support/fake_clock.h"

namespace oarlock::control {
namespace {

using ::testing::SizeIs;

class UnreadableLogTest : public ::testing::Test {
 protected:
  void record(const std::string& name, const std::string& error = "no such phase") {
    log_.record("pods", {"ns", name}, {ExitCode::kDataErr, error});
  }

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::vector<UnreadableLog::Line> lines_;
  UnreadableLog log_{clock_, [this](const UnreadableLog::Line& line) { lines_.push_back(line); }};
};

TEST_F(UnreadableLogTest, LogsEachObjectAndErrorOnce) {
  for (int i = 0; i < 3; ++i) record("a");
  record("b");
  record("a", "no name");
  ASSERT_THAT(lines_, SizeIs(3));
  EXPECT_EQ(lines_[0].message, "ignored an unreadable object");
  EXPECT_EQ(lines_[0].resource, "pods");
  EXPECT_EQ(lines_[0].namespace_name, "ns");
  EXPECT_EQ(lines_[0].name, "a");
  EXPECT_EQ(lines_[0].error, "no such phase");
  EXPECT_EQ(lines_[1].name, "b");
  EXPECT_EQ(lines_[2].error, "no name");
  clock_->advance(std::chrono::minutes(2));
  record("a");
  log_.flush();
  EXPECT_THAT(lines_, SizeIs(3));
}

TEST_F(UnreadableLogTest, CountsTheOthersOfAMinute) {
  for (int i = 0; i < 1000; ++i) record(std::to_string(i));
  log_.flush();
  EXPECT_THAT(lines_, SizeIs(UnreadableLog::kLinesPerMinute));
  clock_->advance(std::chrono::seconds(61));
  log_.flush();
  ASSERT_THAT(lines_, SizeIs(UnreadableLog::kLinesPerMinute + 1));
  EXPECT_EQ(lines_.back().message, "ignored 990 further unreadable objects");
  EXPECT_EQ(lines_.back().resource, "");
  record("999");
  EXPECT_EQ(lines_.back().name, "999");
}

TEST_F(UnreadableLogTest, ShortensTexts) {
  record(std::string(7u << 20, 'n') + "\n", std::string(1u << 20, 'e'));
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_LT(lines_[0].name.size(), 100u);
  EXPECT_LT(lines_[0].error.size(), 400u);
}

}  // namespace
}  // namespace oarlock::control
