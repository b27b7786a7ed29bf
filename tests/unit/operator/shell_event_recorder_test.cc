// The Events that are written for repeated occurrences.
#include "operator/shell/event_recorder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/scripted_transport.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::json;

class EventSeriesTest : public ::testing::Test {
 protected:
  EventSeriesTest() {
    job_.metadata.name = "j";
    job_.metadata.namespace_name = "ns";
    job_.metadata.uid = "u";
  }
  std::optional<EventSeries::Write> add(const std::string& message = "m", const std::string& reason = "Restarting") {
    clock_.advance(1ms);
    return series_.add(job_, {.reason = reason, .action = "Restart", .message = message, .pod = ""}, clock_.now(),
                       clock_.steady());
  }
  std::vector<EventSeries::Write> tick(std::chrono::nanoseconds after) {
    clock_.advance(after);
    return series_.tick(clock_.steady());
  }

  test::FakeClock clock_;
  Job job_;
  EventSeries series_{EventSource{}};
};

TEST_F(EventSeriesTest, CreatesEventThenSeriesThenCounts) {
  const auto first = add();
  ASSERT_TRUE(first);
  EXPECT_THAT(first->patch, IsEmpty());
  EXPECT_FALSE(Json::parse(first->create).contains("series"));
  const auto second = add();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->key, first->key);
  EXPECT_EQ(Json::parse(second->patch)["series"]["count"], 2);
  EXPECT_THAT(Json::parse(second->patch)["series"]["lastObservedTime"], StartsWith("2023-11-14T22:13:20.002"));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(add());
  EXPECT_THAT(tick(1min), IsEmpty());
  // It has ended: its last count is written, and what comes then is a new Event.
  const auto last = tick(6min);
  ASSERT_THAT(last, SizeIs(1));
  EXPECT_EQ(Json::parse(last[0].patch)["series"]["count"], 12);
  EXPECT_EQ(series_.size(), 0u);
  const auto again = add();
  ASSERT_TRUE(again);
  EXPECT_THAT(again->patch, IsEmpty());
  EXPECT_NE(again->key, first->key);
}

TEST_F(EventSeriesTest, RefreshesLongSeriesEveryHalfHour) {
  add();
  add();
  int written = 0;
  for (int minute = 0; minute < 91; ++minute) {
    written += static_cast<int>(tick(1min).size());
    EXPECT_FALSE(add());
  }
  EXPECT_EQ(written, 3);
}

TEST_F(EventSeriesTest, ForgetsSingleEventWithoutWrite) {
  add();
  EXPECT_THAT(tick(7min), IsEmpty());
  EXPECT_EQ(series_.size(), 0u);
}

TEST_F(EventSeriesTest, OtherWordsAreAnotherEvent) {
  EXPECT_THAT(add("attempt 1")->patch, IsEmpty());
  EXPECT_THAT(add("attempt 2")->patch, IsEmpty());
  EXPECT_THAT(add("attempt 2", "Failed")->patch, IsEmpty());
  EXPECT_EQ(series_.size(), 3u);
}

// Messages contain text from the pods. Without a salt, std::hash of these two events is the same in libstdc++.
TEST_F(EventSeriesTest, ForgedHashCollisionIsAnotherEvent) {
  add("m1234567");
  job_.metadata.uid = "v";
  EXPECT_THAT(add("Wt(D\x99\xbci\xc2")->patch, IsEmpty());
  EXPECT_EQ(series_.size(), 2u);
}

TEST_F(EventSeriesTest, SpamFilterIsPerJob) {
  int written = 0;
  for (int i = 0; i < 100; ++i) written += add("m" + std::to_string(i)) ? 1 : 0;
  EXPECT_EQ(written, EventSeries::kBurst);
  job_.metadata.uid = "other";
  EXPECT_TRUE(add());
  job_.metadata.uid = "u";
  EXPECT_FALSE(add("later"));
  clock_.advance(5min);
  EXPECT_TRUE(add("much later"));
  EXPECT_FALSE(add("and on"));
}

// Jobs that come and go by the thousand leave no memory behind.
TEST_F(EventSeriesTest, WhatIsRememberedIsBounded) {
  for (int job = 0; job < 3 * static_cast<int>(EventSeries::kMaxKnown); ++job) {
    job_.metadata.uid = std::to_string(job);
    ASSERT_TRUE(add()) << "every job may write its events";
    ASSERT_LE(series_.size(), EventSeries::kMaxKnown);
    ASSERT_LE(series_.jobs(), EventSeries::kMaxKnown);
  }
  tick(EventSeries::kFinish);
  EXPECT_EQ(series_.size(), 0u);
  EXPECT_EQ(series_.jobs(), 0u) << "one event is made up for after five minutes";
}

TEST(EventRecorder, CreatesPatchesAndRecreatesEvents) {
  const auto clock = std::make_shared<test::FakeClock>();
  const auto transport = std::make_shared<test::ScriptedTransport>(clock);
  EventRecorder recorder(kube::Client(transport, 5s), EventSource{.instance = "me"}, clock, Logger::silent());
  Job job;
  job.metadata.name = "j";
  job.metadata.namespace_name = "ns";
  const EmitEvent event{.reason = "R", .action = "A", .message = "m", .pod = ""};
  recorder.record(job, event);
  recorder.record(job, event);
  transport->script({.status = 201, .pieces = {"{}"}});
  transport->script({.status = 404, .pieces = {R"({"reason":"NotFound"})"}});
  transport->script({.status = 201, .pieces = {"{}"}});
  EXPECT_TRUE(recorder.flush());
  const auto& sent = transport->requests();
  ASSERT_THAT(sent, SizeIs(3));
  EXPECT_EQ(sent[0].method, "POST");
  EXPECT_EQ(sent[1].method, "PATCH");
  EXPECT_THAT(sent[1].target, HasSubstr("/namespaces/ns/events/j."));
  EXPECT_EQ(sent[2].method, "POST");
  EXPECT_EQ(Json::parse(sent[2].body)["series"]["count"], 2);
  EXPECT_TRUE(recorder.flush());
  EXPECT_THAT(sent, SizeIs(3));
}

class EventRetryTest : public ::testing::Test {
 protected:
  EventRetryTest() {
    job_.metadata.name = "j";
    job_.metadata.namespace_name = "ns";
    job_.metadata.uid = "u";
  }
  void record(const std::string& message) {
    clock_->advance(1ms);
    recorder_.record(job_, {.reason = "R", .action = "A", .message = message, .pod = ""});
  }
  std::vector<std::string> notes() const {
    std::vector<std::string> out;
    for (const http::Request& request : transport_->requests()) out.push_back(Json::parse(request.body)["note"]);
    return out;
  }

  const std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  const std::shared_ptr<test::ScriptedTransport> transport_ = std::make_shared<test::ScriptedTransport>(clock_);
  std::map<std::string, int> dropped_;
  Job job_;
  EventRecorder recorder_{kube::Client(transport_, 5s), EventSource{.instance = "me"}, clock_, Logger::silent(),
                          [this](const char* reason) { ++dropped_[reason]; }};
};

TEST_F(EventRetryTest, RetriesFailedWriteWithoutDelayingOthers) {
  record("first");
  record("second");
  transport_->script({.status = 500, .pieces = {"{}"}});
  transport_->script({.status = 201, .pieces = {"{}"}, .takes = 0ms});
  EXPECT_FALSE(recorder_.flush());
  EXPECT_THAT(notes(), ElementsAre("first", "second"));
  EXPECT_TRUE(recorder_.flush());
  EXPECT_THAT(notes(), SizeIs(2)) << "not before its pause is over";
  clock_->advance(1s);
  transport_->script({.status = 409, .pieces = {R"({"reason":"AlreadyExists"})"}});
  EXPECT_TRUE(recorder_.flush()) << "the answer of the first try was lost";
  EXPECT_THAT(notes(), ElementsAre("first", "second", "first"));
  clock_->advance(1h);
  EXPECT_TRUE(recorder_.flush());
  EXPECT_THAT(notes(), SizeIs(3));
  EXPECT_THAT(dropped_, IsEmpty());
}

TEST_F(EventRetryTest, ProbesUnreachableServerWithOneEvent) {
  for (int i = 0; i < 5; ++i) record(std::to_string(i));
  transport_->script({.failure = http::TransportErrorKind::kConnect});
  EXPECT_FALSE(recorder_.flush());
  EXPECT_THAT(notes(), ElementsAre("0"));
  clock_->advance(1s);
  for (int i = 0; i < 5; ++i) transport_->script({.status = 201, .pieces = {"{}"}});
  EXPECT_TRUE(recorder_.flush());
  EXPECT_THAT(notes(), ElementsAre("0", "1", "2", "3", "4", "0"));
}

TEST_F(EventRetryTest, LimitsRetriesAndCountsDrops) {
  record("never");
  for (int i = 0; i < 50; ++i)
    transport_->script({.status = 500, .pieces = {"{}"}, .retry_after = 3600s, .takes = 0ms});
  const SteadyTime begin = clock_->steady();
  for (int second = 0; second < 3600; ++second) {
    recorder_.flush();
    clock_->advance(1s);
    if (dropped_["unwritable"] > 0) break;
  }
  EXPECT_THAT(transport_->requests(), SizeIs(EventRecorder::kMaxTries));
  EXPECT_EQ(dropped_["unwritable"], 1);
  EXPECT_LE(clock_->steady() - begin, 12min) << "no pause is longer than a minute, whatever Retry-After is";
}

TEST_F(EventRetryTest, ARefusedEventIsNotRepeated) {
  record("no");
  transport_->script({.status = 403, .pieces = {R"({"reason":"Forbidden"})"}});
  EXPECT_FALSE(recorder_.flush());
  clock_->advance(1h);
  EXPECT_TRUE(recorder_.flush());
  EXPECT_THAT(notes(), SizeIs(1));
  EXPECT_EQ(dropped_["refused"], 1);
}

TEST_F(EventRetryTest, CountsDropsOfQueueAndSpamFilter) {
  for (int i = 0; i < EventSeries::kBurst + 3; ++i) record(std::to_string(i));
  EXPECT_EQ(dropped_["rate_limited"], 3);
  for (int i = 0; dropped_["queue_full"] == 0; ++i) {
    ASSERT_LT(i, 2000);
    job_.metadata.uid = "u" + std::to_string(i);
    record("m");
  }
  EXPECT_EQ(dropped_["rate_limited"], 3);
}

TEST_F(EventRetryTest, FullQueueDropsEventsOfBusiestNamespace) {
  for (size_t i = 0; i < EventRecorder::kMaxQueue + 100; ++i) {
    job_.metadata.uid = "u" + std::to_string(i);
    record("noise");
  }
  EXPECT_EQ(dropped_["queue_full"], 100);
  job_.metadata.namespace_name = "neighbor";
  for (int i = 0; i < 10; ++i) record("neighbor" + std::to_string(i));
  EXPECT_EQ(dropped_["queue_full"], 110);
  for (size_t i = 0; i < EventRecorder::kMaxQueue; ++i)
    transport_->script({.status = 201, .pieces = {"{}"}, .takes = 0ms});
  EXPECT_TRUE(recorder_.flush());
  const std::vector<std::string> written = notes();
  EXPECT_THAT(written, SizeIs(EventRecorder::kMaxQueue));
  EXPECT_EQ(std::ranges::count(written, "noise"), static_cast<int>(EventRecorder::kMaxQueue) - 10);
}

TEST_F(EventRetryTest, StopTriesOnceAndCountsTheRest) {
  for (int i = 0; i < 5; ++i) record(std::to_string(i));
  for (int i = 0; i < 10; ++i) transport_->script({.failure = http::TransportErrorKind::kConnect});
  recorder_.start();
  recorder_.stop();
  EXPECT_LE(transport_->requests().size(), 2u) << "one round of the thread, one of the stop";
  EXPECT_EQ(dropped_["stopped"], 5);
}

}  // namespace
}  // namespace oarlock::control
