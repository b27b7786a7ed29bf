// The informer and its reflector against a scripted API server: no network, no waiting.
#include "kube/client/informer.h"
#include "tests/unit/operator/informer_fixture.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Failure = http::TransportErrorKind;

TEST_F(InformerTest, ListsFromTheCacheAndWatchesFromItsVersion) {
  transport_->script({.pieces = {list("10", {object("a", "3", "red"), object("b", "4", "blue")})}});
  transport_->script(
      {.pieces = {event("ADDED", object("c", "11", "red")), event("MODIFIED", object("a", "12", "green")),
                  event("DELETED", object("b", "13", "blue"))}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10")));
  EXPECT_EQ(synced_, std::vector<size_t>{2});
  EXPECT_TRUE(informer_->synced());
  ASSERT_THAT(changes_, SizeIs(5));
  EXPECT_THAT((std::vector<std::string>{changes_.begin(), changes_.begin() + 2}),
              ::testing::UnorderedElementsAre("a:->red", "b:->blue"));
  EXPECT_THAT((std::vector<std::string>{changes_.begin() + 2, changes_.end()}),
              ElementsAre("c:->red", "a:red>green", "b:blue>-"));
  EXPECT_EQ(color_of("a"), "green");
  EXPECT_EQ(color_of("b"), "(none)");
  EXPECT_THAT(informer_->store().find("red"), SizeIs(1));
  EXPECT_THAT(informer_->store().find("blue"), IsEmpty());
  EXPECT_TRUE(informer_->has_seen("13"));
  EXPECT_FALSE(informer_->has_seen("14"));
  EXPECT_THAT(problems_, IsEmpty());
  EXPECT_THAT(sleeper_->slept, IsEmpty());
}

// A custom resource can have at most 3 MB (the limit of a request), of which etcd stores half by default.
TEST_F(InformerTest, ReadsObjectsOfThreeMegabytes) {
  const auto large = [](const char* name, const char* version) {
    std::string out = object(name, version, "red");
    std::string noise = "[1";
    while (noise.size() < 3'000'000) noise += R"(,{"k":["v"]})";
    return out.replace(out.find("[1"), 2, noise);
  };
  transport_->script({.pieces = {list("10", {large("a", "3"), object("b", "4", "blue")})}});
  transport_->script({.pieces = {event("ADDED", large("c", "11")), event("ADDED", object("d", "12", "blue"))}});
  run();
  for (const char* name : {"a", "c"}) EXPECT_EQ(color_of(name), "red");
  for (const char* name : {"b", "d"}) EXPECT_EQ(color_of(name), "blue");
  EXPECT_THAT(unreadable_, IsEmpty());
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(InformerTest, AnnouncesEachChangeBeforeReadersSeeIt) {
  transport_->script({.pieces = {list("10", {object("a", "3", "red"), object("b", "4", "blue")})}});
  transport_->script({.pieces = {event("MODIFIED", object("a", "11", "green")),
                                 event("DELETED", object("b", "12", "blue")), error(410, "Expired", "too old")}});
  transport_->script({.pieces = {list("20", {object("c", "15", "red")})}});
  transport_->script({.pieces = {}});
  run();
  ASSERT_THAT(announced_, SizeIs(6));
  EXPECT_EQ(listings_, 2);
  EXPECT_EQ(announced_[2], "a:red>green");
  EXPECT_EQ(announced_[3], "b:blue>-");
  EXPECT_THAT((std::vector<std::string>{announced_.begin() + 4, announced_.end()}),
              ::testing::UnorderedElementsAre("a:green>-", "c:(none)>red"));
}

TEST_F(InformerTest, ResumesWatchAtTheLastEventOrBookmark) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script({.pieces = {event("ADDED", object("a", "11", "red")), bookmark("20")}});
  transport_->script({.pieces = {event("MODIFIED", object("a", "21", "blue"))}});
  transport_->script({.pieces = {bookmark("30")}, .failure = Failure::kBroken});
  transport_->script({.pieces = {}, .failure = Failure::kIdle});
  transport_->script({.pieces = {}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10"), watch_from("20"), watch_from("21"),
                                     watch_from("30"), watch_from("30")));
  EXPECT_EQ(color_of("a"), "blue");
  EXPECT_TRUE(informer_->has_seen("30"));
  EXPECT_THAT(problems_, IsEmpty());
  EXPECT_THAT(sleeper_->slept, IsEmpty());
}

TEST_F(InformerTest, DropsIncompleteLineAtTheEndOfTheStream) {
  const std::string whole = event("ADDED", object("a", "11", "red"));
  const std::string lost = event("ADDED", object("b", "12", "red"));
  transport_->script({.pieces = {list("10", {})}});
  transport_->script(
      {.pieces = {whole.substr(0, 30), whole.substr(30) + lost.substr(0, 40)}, .failure = Failure::kBroken});
  transport_->script({.pieces = {lost}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10"), watch_from("11")));
  EXPECT_THAT(changes_, ElementsAre("a:->red", "b:->red"));
}

TEST_F(InformerTest, GoneInTheStreamCausesARelist) {
  transport_->script(
      {.pieces = {list("10", {object("a", "3", "red"), object("b", "4", "blue"), object("c", "5", "green")})}});
  transport_->script({.pieces = {error(410, "Expired", "too old resource version: 10 (50)")}});
  // The list is paged, because the most recent state comes from etcd.
  transport_->script({.pieces = {list("60", {object("a", "3", "red"), object("b", "55", "black")}, "next")}});
  transport_->script({.pieces = {list("60", {object("d", "56", "white")})}});
  transport_->script({.pieces = {bookmark("61")}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10"), "?limit=2", "?limit=2&continue=next",
                                     watch_from("60")));
  EXPECT_THAT((std::vector<std::string>{changes_.begin() + 3, changes_.end()}),
              ::testing::UnorderedElementsAre("b:blue>black", "c:green>-", "d:->white"));
  EXPECT_EQ(projections_, 5);  // "a" has the same version and is not projected again
  EXPECT_EQ(informer_->store().size(), 3u);
  EXPECT_THAT(problems_, ElementsAre("too old resource version: 10 (50)"));
  EXPECT_THAT(sleeper_->slept, ElementsAre(1200ms));  // 0.8 s plus 50 % jitter
}

TEST_F(InformerTest, GoneResponseAndFutureVersionCauseARelist) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script({.status = 410, .pieces = {R"({"reason":"Gone","message":"gone"})"}});
  transport_->script({.pieces = {list("11", {})}});
  transport_->script(
      {.status = 504, .pieces = {R"({"reason":"Timeout","message":"Too large resource version: 11, current: 5"})"}});
  transport_->script({.pieces = {list("5", {})}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10"), "?limit=2", watch_from("11"), "?limit=2"));
  EXPECT_TRUE(informer_->has_seen("5"));
  EXPECT_FALSE(informer_->has_seen("10"));
}

TEST_F(InformerTest, ExpiredPagesCauseAnUnpagedList) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script({.status = 410, .pieces = {"{}"}});
  transport_->script({.pieces = {list("60", {object("a", "3", "red")}, "next")}});
  transport_->script({.status = 410, .pieces = {R"({"reason":"Expired","message":"the token has expired"})"}});
  transport_->script({.pieces = {list("70", {object("b", "3", "red")})}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10"), "?limit=2", "?limit=2&continue=next", ""));
  EXPECT_THAT(changes_, ElementsAre("b:->red"));  // nothing from the incomplete list
}

TEST_F(InformerTest, BrokenListChangesNothingAndBacksOff) {
  transport_->script({.pieces = {list("10", {object("a", "3", "red")})}});
  transport_->script({.status = 500, .pieces = {R"({"message":"etcd is away"})"}});
  const std::string whole = list("20", {object("b", "12", "red"), object("c", "13", "red")});
  transport_->script({.pieces = {whole.substr(0, whole.size() / 2)}, .failure = Failure::kBroken});
  transport_->script(
      {.pieces = {whole.substr(0, whole.size() - 5)}});  // ends properly in HTTP, but the JSON is incomplete
  transport_->script({.status = 503, .pieces = {"busy"}, .retry_after = 60s});
  transport_->script({.failure = Failure::kConnect});
  transport_->script({.pieces = {list("20", {object("b", "12", "red")})}});
  run();
  EXPECT_THAT(targets(),
              ElementsAre("?resourceVersion=0", watch_from("10"), "?resourceVersion=10", "?resourceVersion=10",
                          "?resourceVersion=10", "?resourceVersion=10", "?resourceVersion=10"));
  EXPECT_THAT(changes_, ElementsAre("a:->red", "b:->red", "a:red>-"));
  EXPECT_THAT(problems_, ElementsAre("etcd is away", "scripted failure", "the list is incomplete",
                                     HasSubstr("503: busy"), "scripted failure"));
  EXPECT_THAT(sleeper_->slept, ElementsAre(1200ms, 2400ms, 4800ms, 60000ms, 19200ms));
}

TEST_F(InformerTest, LimitsRetryAfterToAMinute) {
  transport_->script({.status = 503, .pieces = {"busy"}, .retry_after = std::chrono::seconds::max()});
  transport_->script({.pieces = {list("20", {})}});
  run();
  EXPECT_THAT(sleeper_->slept, ElementsAre(60s));
}

TEST_F(InformerTest, BackoffIsCappedAndReset) {
  for (int i = 0; i < 8; ++i) transport_->script({.failure = Failure::kConnect});
  transport_->script({.pieces = {list("10", {})}});
  transport_->script({.pieces = {bookmark("11")}, .takes = 121s});
  transport_->script({.status = 500});
  transport_->script({.pieces = {list("12", {})}});
  run();
  EXPECT_THAT(sleeper_->slept, ElementsAre(1200ms, 2400ms, 4800ms, 9600ms, 19200ms, 38400ms, 45000ms, 45000ms, 1200ms));
}

TEST_F(InformerTest, RetriesWatchWithoutAListUnderLoad) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script({.failure = Failure::kConnect});
  transport_->script({.status = 429, .pieces = {"{}"}, .retry_after = 7s});
  transport_->script({.pieces = {bookmark("11")}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10"), watch_from("10"), watch_from("10")));
  EXPECT_THAT(sleeper_->slept, ElementsAre(1200ms, 7000ms));
}

TEST_F(InformerTest, ReportsWatchThatEndsImmediately) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script({.pieces = {}, .takes = 10ms});
  transport_->script({.pieces = {list("10", {})}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10"), "?resourceVersion=10"));
  EXPECT_THAT(problems_, ElementsAre(HasSubstr("ended immediately")));
  EXPECT_THAT(sleeper_->slept, SizeIs(1));
}

TEST_F(InformerTest, WatchesBeginAtMostOncePerSecond) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script({.pieces = {event("ADDED", object("a", "11", "red"))}, .takes = 10ms});
  transport_->script(
      {.pieces = {event("MODIFIED", object("a", "12", "blue"))}, .failure = Failure::kBroken, .takes = 300ms});
  transport_->script({.pieces = {bookmark("13")}, .takes = 1s});
  transport_->script({.pieces = {}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10"), watch_from("11"), watch_from("12"),
                                     watch_from("13")));
  EXPECT_EQ(color_of("a"), "blue");
  EXPECT_THAT(problems_, IsEmpty());
  EXPECT_THAT(sleeper_->slept, ElementsAre(990ms, 700ms));
}

}  // namespace
}  // namespace oarlock::kube
