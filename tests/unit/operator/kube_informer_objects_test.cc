// The informer: objects that are invalid, too large or too many.
#include "kube/client/informer.h"
#include "tests/unit/operator/informer_fixture.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

}  // namespace
}  // namespace oarlock::kube
