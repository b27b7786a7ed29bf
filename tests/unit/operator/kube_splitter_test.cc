#include "operator/kube/splitter.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace oarlock::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Feeds the text in pieces of every size; what comes out must always be the same.
template <typename Splitter>
std::vector<std::string> feed_in_pieces(const std::string& text, size_t size, Splitter& splitter) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size(); at += size) {
    EXPECT_TRUE(splitter.feed(std::string_view(text).substr(at, size), [&](std::string_view part) {
      out.emplace_back(part);
      return true;
    }));
  }
  return out;
}

TEST(LineSplitter, GivesWholeLinesHoweverTheyArrive) {
  const std::string text = "one\n\ntwo\nthree with more\nhalf";
  for (size_t size = 1; size <= text.size(); ++size) {
    LineSplitter splitter(100);
    EXPECT_THAT(feed_in_pieces(text, size, splitter), ElementsAre("one", "two", "three with more"))
        << "pieces of " << size;
  }
}

TEST(LineSplitter, ALineOverTheLimitEndsIt) {
  for (const std::string text : {"123456\n", "123456"}) {
    LineSplitter splitter(5);
    EXPECT_FALSE(splitter.feed(text, [](std::string_view) { return true; }));
    EXPECT_TRUE(splitter.too_long());
  }
  LineSplitter in_pieces(5);
  EXPECT_TRUE(in_pieces.feed("123", [](std::string_view) { return true; }));
  EXPECT_FALSE(in_pieces.feed("456\n", [](std::string_view) { return true; }));
  LineSplitter exact(5);
  EXPECT_TRUE(exact.feed("12345\n", [](std::string_view) { return true; }));
  EXPECT_FALSE(exact.too_long());
}

TEST(LineSplitter, TheHandlerMayEndIt) {
  LineSplitter splitter(100);
  std::vector<std::string> lines;
  EXPECT_FALSE(splitter.feed("a\nb\nc\n", [&](std::string_view line) {
    lines.emplace_back(line);
    return line != "b";
  }));
  EXPECT_THAT(lines, ElementsAre("a", "b"));
  EXPECT_FALSE(splitter.too_long());
}

TEST(ItemSplitter, GivesItemsAndTheEnvelopeHoweverTheyArrive) {
  const std::string a = R"({"metadata":{"name":"a","labels":{"x":"}]{[\",\\"}},"spec":[1,[2,{"items":[3]}]]})";
  const std::string b = R"({ "items" : [ {} , [] ] , "s":"\\" })";
  const std::string text = R"({"kind":"PodList","metadata":{"resourceVersion":"12","items":["no"]},"items": [ )" + a +
                           " ,\n" + b + R"( ],"after":{"items":[{"not":"mine"}]}})" + "\n";
  for (size_t size = 1; size <= text.size(); ++size) {
    ItemSplitter splitter(1000);
    EXPECT_THAT(feed_in_pieces(text, size, splitter), ElementsAre(a, b)) << "pieces of " << size;
    EXPECT_TRUE(splitter.complete());
    const auto envelope = nlohmann::json::parse(splitter.envelope(), nullptr, false);
    ASSERT_TRUE(envelope.is_object()) << splitter.envelope();
    EXPECT_EQ(envelope["metadata"]["resourceVersion"], "12");
    EXPECT_EQ(envelope["items"], nlohmann::json::array());
    EXPECT_EQ(envelope["metadata"]["items"][0], "no");
  }
}

TEST(ItemSplitter, NoItemsAreNoItems) {
  for (const std::string items : {"[]", "null", "[ ]"}) {
    ItemSplitter splitter(1000);
    EXPECT_THAT(feed_in_pieces(R"({"items":)" + items + R"(,"metadata":{}})", 7, splitter), IsEmpty());
    EXPECT_TRUE(splitter.complete());
  }
}

TEST(ItemSplitter, AValueNamedItemsIsNoKey) {
  ItemSplitter splitter(1000);
  EXPECT_THAT(feed_in_pieces(R"({"kind":"items","list":[{"a":1}],"items":[{"b":2}]})", 3, splitter),
              ElementsAre(R"({"b":2})"));
}

TEST(ItemSplitter, AnEndInTheMiddleIsNotComplete) {
  ItemSplitter splitter(1000);
  EXPECT_THAT(feed_in_pieces(R"({"items":[{"a":1},{"b":)", 4, splitter), ElementsAre(R"({"a":1})"));
  EXPECT_FALSE(splitter.complete());
}

TEST(ItemSplitter, AnItemOverTheLimitEndsIt) {
  const std::string text = R"({"items":[{"a":")" + std::string(200, 'x') + R"("}]})";
  for (const size_t size : {size_t{10}, text.size()}) {
    ItemSplitter splitter(100);
    bool good = true;
    for (size_t at = 0; good && at < text.size(); at += size) {
      good = splitter.feed(std::string_view(text).substr(at, size), [](std::string_view) { return true; });
    }
    EXPECT_FALSE(good);
    EXPECT_TRUE(splitter.too_long());
  }
}

}  // namespace
}  // namespace oarlock::kube
