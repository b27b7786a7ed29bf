// The informer: watches that send nothing, and WatchList.
#include "kube/client/informer.h"
#include "tests/unit/operator/informer_fixture.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using test::Answer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Failure = http::TransportErrorKind;

TEST_F(InformerTest, ReportsAWorkingWatch) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script({.failure = Failure::kConnect});
  transport_->script({.pieces = {bookmark("11"), bookmark("12")}});
  run();
  EXPECT_THAT(problems_, SizeIs(1));
  EXPECT_EQ(watching_, 1);
}

const Answer kIdle{.pieces = {}, .failure = Failure::kIdle, .takes = 91s};

// A server sends no bookmark where nothing changes, so the list decides.
TEST_F(InformerTest, SilentWatchesWithoutAChangeAreNoProblem) {
  const std::vector<Answer> silent = {
      kIdle,
      {.pieces = {}, .failure = Failure::kBroken, .takes = 91s},
      {.pieces = {}, .takes = 91s},
  };
  for (const Answer& answer : silent) {
    SetUp();
    watching_ = 0;
    transport_->script({.pieces = {list("10", {object("a", "3", "red")})}});
    for (int i = 0; i < 5; ++i) {
      transport_->script(answer);
      transport_->script(answer);
      transport_->script({.pieces = {list(std::to_string(20 + i), {object("a", "3", "red")})}});
    }
    run();
    ASSERT_THAT(targets(), SizeIs(16));
    EXPECT_EQ(targets()[2], watch_from("10"));
    EXPECT_EQ(targets()[3], "?limit=2") << "the most recent state, two watches later";
    EXPECT_EQ(targets()[4], watch_from("20"));
    EXPECT_THAT(problems_, IsEmpty());
    EXPECT_EQ(watching_, 5);
    EXPECT_THAT(synced_, SizeIs(1));
  }
}

// A change between the end of the silent watch and the list would be attributed to the watches.
TEST_F(InformerTest, ListAfterSilentWatchesFollowsImmediately) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script(kIdle);
  transport_->script(kIdle);
  transport_->script({.pieces = {list("20", {})}});
  run();
  ASSERT_THAT(targets(), SizeIs(4));
  EXPECT_THAT(sleeper_->slept, IsEmpty());
}

TEST_F(InformerTest, ReportsWatchesThatMissChangesUntilAnEvent) {
  transport_->script({.pieces = {list("10", {})}});
  for (int i = 1; i <= 5; ++i) {
    transport_->script(kIdle);
    transport_->script(kIdle);
    transport_->script({.pieces = {list(std::to_string(10 + i), {object("a", std::to_string(10 + i), "red")})}});
  }
  transport_->script({.pieces = {bookmark("30")}, .failure = Failure::kIdle, .takes = 91s});
  transport_->script(kIdle);
  transport_->script({.pieces = {bookmark("40")}});
  run();
  EXPECT_THAT(problems_, SizeIs(5));
  EXPECT_THAT(problems_, ::testing::Each(HasSubstr("no event arrived for 180 s although objects have changed")));
  EXPECT_THAT(synced_, SizeIs(1)) << "a success of these lists would hide the failures of the watches";
  EXPECT_EQ(color_of("a"), "red");
  EXPECT_EQ(watching_, 2);
  EXPECT_EQ(targets().back(), watch_from("30")) << "an event ends the silence";
}

// A load balancer that resets each connection after 20 s.
TEST_F(InformerTest, ShortSilentWatchesCauseARelist) {
  transport_->script({.pieces = {list("10", {})}});
  for (int i = 0; i < 9; ++i) transport_->script({.pieces = {}, .failure = Failure::kBroken, .takes = 20s});
  transport_->script({.pieces = {list("20", {object("a", "11", "red")})}});
  transport_->script({.pieces = {bookmark("21")}});
  run();
  EXPECT_EQ(targets()[10], "?limit=2");
  EXPECT_THAT(problems_, SizeIs(1));
  EXPECT_EQ(watching_, 1);
}

TEST_F(InformerTest, FailedListDoesNotBlameSilentWatches) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script(kIdle);
  transport_->script(kIdle);
  transport_->script({.status = 500, .pieces = {R"({"message":"etcd is away"})"}});
  transport_->script({.pieces = {list("20", {object("a", "11", "red")})}});
  run();
  EXPECT_THAT(problems_, ElementsAre("etcd is away"));
  EXPECT_EQ(synced_, (std::vector<size_t>{0, 1}));
}

TEST_F(InformerTest, SendsNothingAfterTheStop) {
  stop_.request_stop();
  transport_->script({.pieces = {list("10", {})}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0"));  // the transport rejects a cancelled call itself
  EXPECT_THAT(sleeper_->slept, IsEmpty());
}

TEST_F(InformerTest, WatchLimitsExceedTheServersTimeout) {
  transport_->script({.pieces = {list("10", {})}});
  transport_->script({.pieces = {bookmark("11")}});
  run();
  EXPECT_EQ(transport_->last_limits.idle, 90s);
  EXPECT_EQ(transport_->last_limits.total, 480s);
}

TEST_F(InformerTest, WatchThatGoesBackCausesARelist) {
  transport_->script({.pieces = {list("100", {object("a", "90", "red")})}});
  transport_->script({.pieces = {event("MODIFIED", object("a", "101", "blue")),
                                 event("ADDED", object("b", "60", "red")), event("ADDED", object("c", "102", "red"))}});
  transport_->script({.pieces = {list("61", {object("a", "40", "green"), object("b", "60", "red")})}});
  run();
  EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("100"), "?limit=2"));
  EXPECT_THAT(problems_, ElementsAre(HasSubstr("went back from resourceVersion 101 to 60")));
  EXPECT_EQ(color_of("a"), "green");
  EXPECT_EQ(color_of("c"), "(none)");  // events after the step back are ignored
  EXPECT_FALSE(informer_->has_seen("100"));
}

// With WatchList, the initial state is the beginning of the watch.
class WatchListTest : public InformerTest {
 protected:
  WatchListTest() : InformerTest(true) {}
  static std::string initial_from(const std::string& version) {
    return "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" +
           (version.empty() ? "" : "&resourceVersion=" + version) + "&timeoutSeconds=450";
  }
  static std::string end_of_initial(const std::string& version) {
    return event("BOOKMARK", R"({"metadata":{"resourceVersion":")" + version +
                                 R"(","annotations":{"k8s.io/initial-events-end":"true"}}})");
  }
};

TEST_F(WatchListTest, CommitsInitialEventsAndContinuesAsAWatch) {
  transport_->script({.pieces = {event("ADDED", object("b", "40", "blue")), event("ADDED", object("a", "3", "red")),
                                 event("MODIFIED", object("a", "41", "green")), event("ADDED", object("c", "5", "red")),
                                 event("DELETED", object("c", "42", "red")), end_of_initial("50"),
                                 event("ADDED", object("d", "51", "black"))},
                      .failure = Failure::kBroken});
  transport_->script({.pieces = {bookmark("60")}});
  run();
  EXPECT_THAT(targets(), ElementsAre(initial_from("0"), watch_from("51")));
  EXPECT_EQ(synced_, std::vector<size_t>{2});
  EXPECT_THAT(changes_, ::testing::UnorderedElementsAre("a:->green", "b:->blue", "d:->black"));
  EXPECT_TRUE(informer_->has_seen("60"));
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(WatchListTest, BoundsTheNumberOfInitialObjects) {
  max_objects_ = 1;
  make_informer({});
  transport_->script({.pieces = {event("ADDED", object("a", "3", "red")) + event("ADDED", object("b", "4", "red"))}});
  transport_->script({.pieces = {}});
  run();
  ASSERT_FALSE(problems_.empty());
  EXPECT_EQ(problems_.front(), "the server sent more than 1 object");
  EXPECT_EQ(informer_->store().size(), 0u);
  EXPECT_THAT(synced_, IsEmpty());
}

TEST_F(WatchListTest, RecoversAfterTooManyObjects) {
  max_objects_ = 2;
  make_informer({});
  transport_->script({.pieces = {event("ADDED", object("a", "3", "red")) + event("ADDED", object("b", "4", "red")) +
                                 end_of_initial("10") + event("ADDED", object("c", "11", "red"))}});
  transport_->script({.pieces = {event("ADDED", object("c", "11", "red")) + end_of_initial("20")}});
  run();
  EXPECT_THAT(problems_, ElementsAre("the server sent more than 2 objects"));
  EXPECT_EQ(synced_, (std::vector<size_t>{2, 1}));
  EXPECT_EQ(color_of("a"), "(none)");
  EXPECT_EQ(color_of("c"), "red");
}

TEST_F(WatchListTest, StreamThatBreaksEarlyChangesNothing) {
  transport_->script({.pieces = {event("ADDED", object("a", "3", "red"))}, .failure = Failure::kBroken});
  transport_->script({.pieces = {event("ADDED", object("b", "4", "blue")), end_of_initial("9")}});
  run();
  EXPECT_THAT(targets(), ElementsAre(initial_from("0"), initial_from("0")));
  EXPECT_THAT(changes_, ElementsAre("b:->blue"));
  EXPECT_THAT(problems_, SizeIs(1));
  EXPECT_THAT(sleeper_->slept, ElementsAre(1200ms));
}

TEST_F(WatchListTest, FallsBackIfTheServerRejectsIt) {
  transport_->script({.status = 422, .pieces = {R"({"reason":"Invalid","message":"sendInitialEvents: Forbidden"})"}});
  transport_->script({.pieces = {list("10", {object("a", "3", "red")})}});
  transport_->script({.pieces = {error(410, "Expired", "too old")}});
  transport_->script({.pieces = {list("20", {})}});
  run();
  EXPECT_THAT(targets(), ElementsAre(initial_from("0"), "?resourceVersion=0", watch_from("10"), "?limit=2"));
  EXPECT_THAT(problems_, ElementsAre("too old"));
}

TEST_F(WatchListTest, FallsBackIfTheServerIgnoresIt) {
  transport_->script({.pieces = {event("ADDED", object("a", "3", "red")), bookmark("7"), bookmark("8")}});
  transport_->script({.pieces = {list("10", {object("a", "3", "red")})}});
  run();
  EXPECT_THAT(targets(), ElementsAre(initial_from("0"), "?resourceVersion=0"));
  EXPECT_THAT(changes_, ElementsAre("a:->red"));
}

TEST_F(WatchListTest, GoneCausesARelistThatSharesUnchangedObjects) {
  transport_->script({.pieces = {event("ADDED", object("a", "3", "red")), event("ADDED", object("b", "4", "blue")),
                                 end_of_initial("10"), error(410, "Expired", "too old")}});
  transport_->script({.pieces = {event("ADDED", object("a", "3", "red")), end_of_initial("30")}});
  run();
  EXPECT_THAT(targets(), ElementsAre(initial_from("0"), initial_from("")));
  EXPECT_THAT((std::vector<std::string>{changes_.begin() + 2, changes_.end()}), ElementsAre("b:blue>-"));
  EXPECT_EQ(projections_, 2);
}

TEST_F(WatchListTest, ReportsSilentWatchesThatMissChangesUntilAnEvent) {
  transport_->script({.pieces = {end_of_initial("10")}, .failure = Failure::kIdle});
  transport_->script(kIdle);
  transport_->script(kIdle);
  transport_->script(
      {.pieces = {event("ADDED", object("a", "11", "red")), end_of_initial("20")}, .failure = Failure::kIdle});
  transport_->script(kIdle);
  transport_->script(kIdle);
  transport_->script({.pieces = {event("ADDED", object("a", "21", "blue")), end_of_initial("30"), bookmark("31")}});
  run();
  EXPECT_THAT(targets(), ElementsAre(initial_from("0"), watch_from("10"), watch_from("10"), initial_from(""),
                                     watch_from("20"), watch_from("20"), initial_from("")));
  EXPECT_THAT(problems_, SizeIs(2));
  EXPECT_EQ(synced_, std::vector<size_t>{0});
  EXPECT_EQ(watching_, 1) << "an event after the initial ones";
}

TEST_F(WatchListTest, BacksOffUnderLoad) {
  transport_->script({.status = 429, .pieces = {"{}"}, .retry_after = 5s});
  transport_->script({.pieces = {end_of_initial("10")}});
  run();
  EXPECT_THAT(targets(), ElementsAre(initial_from("0"), initial_from("0")));
  EXPECT_THAT(sleeper_->slept, ElementsAre(5000ms));
}

}  // namespace
}  // namespace oarlock::kube
