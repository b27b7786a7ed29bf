// The informer and its reflector against a scripted API server: no network, no waiting.
#include "kube/client/informer.h"

#include <gmock/gmock.h>

#include "tests/support/scripted_transport.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using test::Answer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Failure = http::TransportErrorKind;

struct Thing {
  std::string color;
};

std::string object(const std::string& name, const std::string& version, const std::string& color) {
  return R"({"metadata":{"namespace":"ns","name":")" + name + R"(","resourceVersion":")" + version +
         R"(","managedFields":[{"x":{}}]},"color":")" + color + R"(","noise":[1,2]})";
}
std::string list(const std::string& version, const std::vector<std::string>& items, const std::string& more = "") {
  std::string text = R"({"kind":"ThingList","metadata":{"resourceVersion":")" + version + R"(","continue":")" + more +
                     R"("},"items":[)";
  for (size_t i = 0; i < items.size(); ++i) text += (i > 0 ? "," : "") + items[i];
  return text + "]}\n";
}
std::string event(const std::string& type, const std::string& what) {
  return R"({"type":")" + type + R"(","object":)" + what + "}\n";
}
std::string bookmark(const std::string& version) {
  return event("BOOKMARK", R"({"kind":"Thing","metadata":{"resourceVersion":")" + version + R"("}})");
}
std::string error(int code, const std::string& reason, const std::string& message) {
  return event("ERROR", R"({"kind":"Status","code":)" + std::to_string(code) + R"(,"reason":")" + reason +
                            R"(","message":")" + message + R"("})");
}

TEST(MemoryShares, ShrinksTheLargestNamespacesInOrder) {
  struct Row {
    const char* name;
    std::vector<MemoryShare> shares;
    size_t excess;
    std::vector<size_t> chosen;
  };
  const std::vector<Row> rows = {
      {.name = "nothing to drop", .shares = {{"a", 10, {}, 0}}, .excess = 0, .chosen = {}},
      {.name = "one namespace, by rank and then by value",
       .shares = {{"a", 10, {2, 0}, 0}, {"a", 10, {1, 9}, 1}, {"a", 10, {1, -9}, 2}},
       .excess = 11,
       .chosen = {2, 1}},
      {.name = "only the largest",
       .shares = {{"a", 10, {}, 0}, {"b", 10, {}, 1}, {"b", 5, {}, 2}},
       .excess = 4,
       .chosen = {1}},
      {.name = "two become equally large",
       .shares =
           {{"a", 9, {}, 0}, {"b", 10, {}, 1}, {"b", 10, {}, 2}, {"c", 10, {}, 3}, {"c", 10, {}, 4}, {"c", 10, {}, 5}},
       .excess = 30,
       .chosen = {3, 4, 1}},
      {.name = "equal namespaces do not lose everything",
       .shares = {{"a", 10, {}, 0}, {"b", 10, {}, 1}, {"c", 10, {}, 2}},
       .excess = 10,
       .chosen = {0}},
      {.name = "less than the excess", .shares = {{"a", 10, {}, 0}, {"b", 1, {}, 1}}, .excess = 100, .chosen = {0, 1}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(choose_excess(row.shares, row.excess), row.chosen);
  }
}

class InformerTest : public ::testing::Test {
 protected:
  explicit InformerTest(bool watch_list = false) : watch_list_(watch_list) {}

  void SetUp() override { make_informer({}); }

  // Starts again with an empty server and a new informer.
  void make_informer(std::function<Thing(const nlohmann::json&, const Error&)> stand_in) {
    stop_ = std::stop_source();
    transport_ = std::make_shared<test::ScriptedTransport>(clock_);
    incomplete_.clear();
    changes_.clear(), announced_.clear(), unreadable_.clear(), problems_.clear(), synced_.clear();
    transport_->at_end([this] { stop_.request_stop(); });
    ReflectorOptions options{.resource = {"g", "v1", "things"}, .selection = {}, .fields = FieldFilter({"color"})};
    options.page_size = 2;
    options.watch_list = watch_list_;
    options.max_objects = max_objects_;
    options.max_bytes = max_bytes_;
    Informer<Thing>::Hooks hooks;
    hooks.project = [this](const nlohmann::json& body) -> Result<Thing> {
      ++projections_;
      EXPECT_FALSE(body.contains("noise"));
      if (body.value("color", "") == "throw") throw std::runtime_error("thrown");
      if (body.value("color", "") == "unreadable") return fail(ExitCode::kConfig, "no such color");
      return Thing{body.value("color", "")};
    };
    hooks.index_of = [](const ObjectKey&, const Thing& thing) { return thing.color; };
    hooks.bytes_of = [](const Thing& thing) { return sizeof thing + thing.color.capacity(); };
    hooks.drop_order = [](const Thing& thing) { return DropOrder{.rank = static_cast<int>(thing.color.size())}; };
    hooks.on_incomplete = [this](const std::set<std::string>& namespaces) { incomplete_.push_back(namespaces); };
    hooks.on_change = [this](const ObjectKey& key, const Thing* before, const Thing* after) {
      changes_.push_back(key.name + ":" + (before ? before->color : "-") + ">" + (after ? after->color : "-"));
    };
    hooks.before_change = [this](const ObjectKey& key, const Thing* before, const Thing* after) {
      const std::string stored = color_of(key.name, key.namespace_name);
      EXPECT_EQ(stored, before ? before->color : "(none)") << "before_change is called after the store has changed";
      announced_.push_back(key.name + ":" + stored + ">" + (after ? after->color : "-"));
    };
    hooks.on_unreadable = [this](const ObjectKey& key, const Error& e) {
      unreadable_.push_back(key.to_string() + ": " + e.message);
    };
    hooks.on_problem = [this](const ApiError& e) { problems_.push_back(e.message); };
    hooks.on_listing = [this] { ++listings_; };
    hooks.on_synced = [this](size_t count) { synced_.push_back(count); };
    hooks.on_watching = [this] { ++watching_; };
    hooks.placeholder = std::move(stand_in);
    informer_ = std::make_unique<Informer<Thing>>(options, hooks, transport_, clock_, sleeper_, [] { return 0.5; });
  }

  void run() { informer_->run(stop_.get_token()); }
  std::vector<std::string> targets() const {
    std::vector<std::string> out;
    for (const http::Request& request : transport_->requests())
      out.push_back(request.target.substr(std::string("/apis/g/v1/things").size()));
    return out;
  }
  static std::string watch_from(const std::string& version) {
    return "?watch=true&allowWatchBookmarks=true&resourceVersion=" + version + "&timeoutSeconds=450";
  }
  std::string color_of(const std::string& name, const std::string& namespace_name = "ns") const {
    const auto thing = informer_->store().get({namespace_name, name});
    return thing ? thing->color : "(none)";
  }

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::shared_ptr<test::ScriptedTransport> transport_ = std::make_shared<test::ScriptedTransport>(clock_);
  std::shared_ptr<test::RecordingSleeper> sleeper_ = std::make_shared<test::RecordingSleeper>(clock_);
  std::stop_source stop_;
  std::unique_ptr<Informer<Thing>> informer_;
  std::vector<std::string> changes_, announced_, unreadable_, problems_;
  std::vector<size_t> synced_;
  int projections_ = 0;
  int listings_ = 0;
  int watching_ = 0;
  size_t max_objects_ = 1000;
  size_t max_bytes_ = 64u << 20;
  std::vector<std::set<std::string>> incomplete_;
  const bool watch_list_;
};

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

TEST_F(InformerTest, SkipsInvalidLineOfAWatch) {
  for (const std::string garbage : {"{\"type\":", R"({"type":"NEW","object":{}})", R"({"type":"ADDED"})", "[]", "\xff",
                                    R"({"type":"ADDED","object":{}})", R"({"type":3,"object":[]})",
                                    R"({"type":"ADDED","object":{"metadata":{"name":7,"namespace":[]}}})"}) {
    SCOPED_TRACE(garbage);
    SetUp();
    transport_->script({.pieces = {list("10", {})}});
    transport_->script({.pieces = {event("ADDED", object("a", "11", "red")) + garbage + "\n" +
                                   event("ADDED", object("b", "12", "blue"))}});
    transport_->script({.pieces = {event("MODIFIED", object("a", "13", "blue"))}});
    run();
    EXPECT_THAT(targets(), ElementsAre("?resourceVersion=0", watch_from("10"), watch_from("12")));
    EXPECT_THAT(changes_, ElementsAre("a:->red", "b:->blue", "a:red>blue"));
    EXPECT_THAT(unreadable_, SizeIs(1));
    EXPECT_THAT(problems_, IsEmpty());
    EXPECT_THAT(sleeper_->slept, IsEmpty());
  }
}

TEST_F(InformerTest, SkipsInvalidItemOfAList) {
  for (const std::string garbage : {R"({"metadata":tru})", R"({"color":"\u12"})", "{}", "{\"a\":\"\xff\"}",
                                    R"({"metadata":3})", R"({"metadata":{"namespace":"ns","name":null}})"}) {
    SCOPED_TRACE(garbage);
    SetUp();
    transport_->script({.pieces = {list("10", {object("a", "3", "red"), garbage, object("b", "4", "blue")})}});
    transport_->script({.pieces = {bookmark("11")}});
    run();
    EXPECT_THAT(changes_, ::testing::UnorderedElementsAre("a:->red", "b:->blue"));
    EXPECT_EQ(synced_, std::vector<size_t>{2});
    EXPECT_THAT(unreadable_, SizeIs(1));
    EXPECT_THAT(problems_, IsEmpty());
  }
}

// An object whose `color` can be skipped but not parsed, so that only its identity is known.
std::string damaged(const std::string& name, const std::string& version) {
  return R"({"metadata":{"namespace":"ns","name":")" + name + R"(","resourceVersion":")" + version +
         R"("},"color":tru})";
}

TEST_F(InformerTest, KeepsPreviousStateOfAnInvalidObject) {
  transport_->script({.pieces = {list("10", {object("a", "3", "red"), damaged("b", "4")})}});
  transport_->script({.pieces = {event("MODIFIED", damaged("a", "11")), event("ADDED", object("c", "12", "blue")),
                                 event("DELETED", damaged("a", "13"))}});
  run();
  EXPECT_THAT(changes_, ElementsAre("a:->red", "c:->blue", "a:red>-"));
  EXPECT_THAT(unreadable_, ElementsAre(HasSubstr("ns/b: "), HasSubstr("ns/a: ")));
  EXPECT_TRUE(informer_->has_seen("13"));
}

TEST_F(InformerTest, PlaceholderReplacesAnInvalidObject) {
  make_informer([](const nlohmann::json& body, const Error& error) {
    return Thing{body["metadata"].value("name", "") + " " + (error.message.empty() ? "-" : "unreadable")};
  });
  transport_->script({.pieces = {list("10", {object("a", "3", "red"), damaged("b", "4")})}});
  transport_->script({.pieces = {event("MODIFIED", damaged("a", "11")), event("MODIFIED", object("b", "12", "blue")),
                                 event("MODIFIED", object("a", "13", "unreadable"))}});
  run();
  EXPECT_EQ(color_of("a"), "a unreadable");
  EXPECT_EQ(color_of("b"), "blue");
  EXPECT_THAT(unreadable_, SizeIs(3));
}

TEST_F(InformerTest, ExceptionOfTheProjectionAffectsOneObject) {
  transport_->script({.pieces = {list("10", {object("a", "3", "throw"), object("b", "4", "blue")})}});
  transport_->script({.pieces = {event("ADDED", object("c", "12", "throw"))}});
  run();
  EXPECT_THAT(changes_, ElementsAre("b:->blue"));
  EXPECT_THAT(unreadable_, ElementsAre("ns/a: thrown", "ns/c: thrown"));
}

TEST_F(InformerTest, SkipsTooLongObject) {
  const std::string huge = object("huge", "11", std::string(9u << 20, 'x'));
  transport_->script({.pieces = {list("10", {object("a", "3", "red"), huge, object("b", "4", "blue")})}});
  transport_->script({.pieces = {event("ADDED", huge), event("ADDED", object("c", "12", std::string(3u << 20, 'y')))}});
  run();
  EXPECT_THAT(informer_->store().get({"ns", "a"}), ::testing::NotNull());
  EXPECT_THAT(informer_->store().get({"ns", "b"}), ::testing::NotNull());
  EXPECT_THAT(informer_->store().get({"ns", "c"}), ::testing::NotNull());
  EXPECT_EQ(informer_->store().size(), 3U);
  EXPECT_THAT(unreadable_, ElementsAre(HasSubstr("an item of the list was ignored: it is longer than"),
                                       HasSubstr("a line of the watch was ignored: it is longer than")));
  EXPECT_THAT(problems_, IsEmpty());
}

// Pages without an end, and a watch that adds objects without an end.
TEST_F(InformerTest, BoundsTheNumberOfObjects) {
  max_objects_ = 3;
  make_informer({});
  transport_->script({.pieces = {list("10", {object("a", "1", "red"), object("b", "2", "red")}, "next")}});
  transport_->script({.pieces = {list("10", {object("c", "3", "red"), object("d", "4", "red")}, "next")}});
  transport_->script({.pieces = {list("20", {object("a", "1", "red"), object("b", "2", "red")})}});
  transport_->script({.pieces = {event("ADDED", object("c", "21", "red")) + event("ADDED", object("d", "22", "red")) +
                                 event("ADDED", object("e", "23", "red"))}});
  transport_->script({.pieces = {list("30", {object("a", "1", "red")})}});
  transport_->script({.pieces = {}});
  run();
  EXPECT_THAT(problems_, ElementsAre("the server sent more than 3 objects", "the server sent more than 3 objects"));
  EXPECT_EQ(synced_, (std::vector<size_t>{2, 1}));
  EXPECT_EQ(color_of("e"), "(none)");
  EXPECT_EQ(informer_->store().size(), 1u);
}

TEST_F(InformerTest, EndlessPagesEndTheListWithBackoff) {
  for (const bool has_object : {false, true}) {  // none, or the same one on each page
    make_informer({});
    constexpr size_t kPages = 1100;
    const std::vector<std::string> items(has_object ? 1 : 0, object("a", "1", "red"));
    for (size_t i = 0; i < kPages; ++i) transport_->script({.pieces = {list("10", items, "next")}});
    const size_t pauses = sleeper_->slept.size();
    run();
    ASSERT_THAT(problems_, ::testing::Not(IsEmpty()));
    EXPECT_THAT(problems_[0], HasSubstr(has_object ? "more than 1000 objects" : "15 pages with 0 objects"));
    EXPECT_GE(sleeper_->slept.size() - pauses, problems_.size() - 1);
    EXPECT_THAT(synced_, IsEmpty());
  }
}

// A list, its pages, and a watch are limited; replaced and deleted objects are not counted.
TEST_F(InformerTest, DropsObjectsOfTheLargestNamespace) {
  max_bytes_ = 16'000;
  make_informer({});
  const auto in = [](const std::string& namespace_name, const std::string& name, int version, size_t size) {
    return R"({"metadata":{"namespace":")" + namespace_name + R"(","name":")" + name + R"(","resourceVersion":")" +
           std::to_string(version) + R"("},"color":")" + std::string(size, 'x') + "\"}";
  };
  // Objects with the longest colors are dropped last. Those of other namespaces are kept, although they come late.
  transport_->script({.pieces = {list("10", {in("large", "a", 1, 5000), in("large", "b", 2, 4000)}, "next")}});
  transport_->script({.pieces = {list("10", {in("large", "c", 3, 3000), in("small", "d", 4, 5000)})}});
  transport_->script(
      {.pieces = {event("MODIFIED", in("large", "a", 21, 5100)) + event("ADDED", in("large", "e", 22, 1000)) +
                  event("ADDED", in("other", "f", 23, 2500))}});
  // The watch has ended, so that a list shows whether the objects fit now.
  transport_->script({.pieces = {list("30", {in("large", "a", 21, 5100), in("large", "b", 24, 1000)})}});
  transport_->script({.pieces = {bookmark("31")}});
  run();
  using Namespaces = std::set<std::string>;
  EXPECT_THAT(incomplete_, ElementsAre(Namespaces{"large"}, Namespaces{}));
  EXPECT_EQ(synced_, (std::vector<size_t>{3, 2}));
  std::vector<std::string> dropped;
  for (const std::string& change : changes_) {
    if (change.ends_with(">-")) dropped.push_back(change.substr(0, change.find(':')));
  }
  EXPECT_THAT(dropped, ::testing::UnorderedElementsAre("e", "b", "d", "f"));
  EXPECT_THAT(targets().back(), HasSubstr("watch=true"));
  EXPECT_THAT(problems_, IsEmpty());
  EXPECT_FALSE(informer_->is_incomplete("large"));
}

// Only a faulty API server has so many namespaces.
TEST_F(InformerTest, FailsIfTooManyNamespacesAreIncomplete) {
  max_bytes_ = 20'000;
  max_objects_ = 100'000;
  make_informer({});
  std::vector<std::string> items;
  for (int i = 0; i < 3000; ++i)
    items.push_back(R"({"metadata":{"namespace":"ns)" + std::to_string(i) + R"(","name":"a"},"color":"red"})");
  transport_->script({.pieces = {list("10", items)}});
  run();
  EXPECT_THAT(problems_, ElementsAre("the objects take more than 20 KiB of memory, in more than 1000 namespaces"));
  EXPECT_THAT(synced_, IsEmpty());
  EXPECT_THAT(incomplete_, IsEmpty());
}

TEST_F(InformerTest, IgnoresObjectsWithALongerIdentityThanKubernetesPermits) {
  const std::string longest(253, 'n');
  const auto with = [](const std::string& metadata) { return R"({"metadata":{)" + metadata + R"(},"color":"red"})"; };
  transport_->script(
      {.pieces = {list("10", {object(longest, "1", "red"), object(longest + "n", "2", "red"),
                              with(R"("name":"b","namespace":")" + std::string(64, 's') + "\""),
                              with(R"("name":"c","namespace":"ns","resourceVersion":")" + std::string(129, '1') + "\""),
                              object("d", "3", "red")})}});
  transport_->script({.pieces = {event("ADDED", object(std::string(1u << 20, 'e'), "11", "red")) +
                                 event("MODIFIED", object("d", "12", "blue"))}});
  run();
  EXPECT_EQ(informer_->store().size(), 2u);
  EXPECT_EQ(color_of(longest), "red");
  EXPECT_EQ(color_of("d"), "blue");
  EXPECT_THAT(unreadable_, ElementsAre(HasSubstr("metadata.name is longer than 253 bytes"),
                                       HasSubstr("metadata.namespace is longer than 63 bytes"),
                                       HasSubstr("metadata.resourceVersion is longer than 128 bytes"),
                                       HasSubstr("metadata.name is longer than 253 bytes")));
  for (const std::string& text : unreadable_) EXPECT_LT(text.size(), 250u);
  EXPECT_THAT(problems_, IsEmpty());
}

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
