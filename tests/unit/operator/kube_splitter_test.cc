#include "kube/client/list_watch.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace oarlock::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Feeds the text in pieces of `size` bytes. The result must not depend on the size.
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

TEST(LineSplitter, SplitsLinesIndependentlyOfPieces) {
  const std::string text = "one\n\ntwo\nthree with more\nhalf";
  for (size_t size = 1; size <= text.size(); ++size) {
    LineSplitter splitter(100);
    EXPECT_THAT(feed_in_pieces(text, size, splitter), ElementsAre("one", "two", "three with more"))
        << "pieces of " << size;
  }
}

TEST(LineSplitter, SkipsALineOverTheLimit) {
  const std::string text = "a\n123456\nb\n12345\n1234567890\n\nc\n";
  for (size_t size = 1; size <= text.size(); ++size) {
    LineSplitter splitter(5);
    EXPECT_THAT(feed_in_pieces(text, size, splitter), ElementsAre("a", "b", "12345", "c")) << "pieces of " << size;
    EXPECT_EQ(splitter.skipped(), 2);
    EXPECT_FALSE(splitter.is_endless());
  }
}

TEST(LineSplitter, EndlessLineEndsTheStream) {
  LineSplitter splitter(5);
  EXPECT_TRUE(splitter.feed(std::string(5 * kSkipFactor, 'x'), [](std::string_view) { return true; }));
  EXPECT_FALSE(splitter.feed("x", [](std::string_view) { return true; }));
  EXPECT_TRUE(splitter.is_endless());
}

TEST(LineSplitter, HandlerEndsTheStream) {
  LineSplitter splitter(100);
  std::vector<std::string> lines;
  EXPECT_FALSE(splitter.feed("a\nb\nc\n", [&](std::string_view line) {
    lines.emplace_back(line);
    return line != "b";
  }));
  EXPECT_THAT(lines, ElementsAre("a", "b"));
  EXPECT_FALSE(splitter.is_endless());
}

TEST(ItemSplitter, SplitsItemsIndependentlyOfPieces) {
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

TEST(ItemSplitter, AcceptsListsWithoutItems) {
  for (const std::string items : {"[]", "null", "[ ]"}) {
    ItemSplitter splitter(1000);
    EXPECT_THAT(feed_in_pieces(R"({"items":)" + items + R"(,"metadata":{}})", 7, splitter), IsEmpty());
    EXPECT_TRUE(splitter.complete());
  }
}

TEST(ItemSplitter, ValueItemsIsNotAKey) {
  ItemSplitter splitter(1000);
  EXPECT_THAT(feed_in_pieces(R"({"kind":"items","list":[{"a":1}],"items":[{"b":2}]})", 3, splitter),
              ElementsAre(R"({"b":2})"));
}

TEST(ItemSplitter, TruncatedListIsIncomplete) {
  ItemSplitter splitter(1000);
  EXPECT_THAT(feed_in_pieces(R"({"items":[{"a":1},{"b":)", 4, splitter), ElementsAre(R"({"a":1})"));
  EXPECT_FALSE(splitter.complete());
}

TEST(ItemSplitter, SkipsAnItemOverTheLimit) {
  const std::string text = R"({"items":[{"b":1},{"a":")" + std::string(200, 'x') + R"("},{"c":{"d":[2]}}],"z":1})";
  for (size_t size = 1; size <= text.size(); ++size) {
    ItemSplitter splitter(100);
    EXPECT_THAT(feed_in_pieces(text, size, splitter), ElementsAre(R"({"b":1})", R"({"c":{"d":[2]}})"))
        << "pieces of " << size;
    EXPECT_EQ(splitter.skipped(), 1);
    EXPECT_TRUE(splitter.complete());
  }
}

TEST(ItemSplitter, EndlessItemEndsTheStream) {
  ItemSplitter splitter(100);
  EXPECT_TRUE(splitter.feed(R"({"items":[{"a":")", [](std::string_view) { return true; }));
  EXPECT_FALSE(splitter.feed(std::string(100 * kSkipFactor, 'x'), [](std::string_view) { return true; }));
  EXPECT_TRUE(splitter.is_endless());
}

}  // namespace
}  // namespace oarlock::kube
