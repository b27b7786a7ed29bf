#include "operator/core/text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace oarlock::test {
namespace {

using control::last_line;
using control::one_line;

TEST(Text, OneLine) {
  EXPECT_EQ(one_line("a\nb\tc\r\n"), "a b c");
  EXPECT_EQ(one_line("Grüße"), "Grüße");
  EXPECT_EQ(one_line("a\xff\xfe\x80z"), "a???z");
  EXPECT_EQ(one_line("cut \xe2\x82"), "cut ??");
  EXPECT_EQ(one_line("12345", 5), "12345");
  EXPECT_EQ(one_line("123456", 5), "12...");
  EXPECT_EQ(one_line("ääää", 7), "ää...");
  EXPECT_EQ(one_line(""), "");
}

// nlohmann's strict dump throws on whatever is not UTF-8: an independent judge.
TEST(Text, AlwaysUtf8AndBounded) {
  uint32_t state = 1;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes;
    for (int i = 0; i < 24; ++i) {
      state = state * 1664525 + 1013904223;
      bytes += static_cast<char>(state >> 24);
    }
    const std::string text = one_line(bytes, 16);
    EXPECT_LE(text.size(), 16U);
    EXPECT_NO_THROW(static_cast<void>(nlohmann::json(text).dump())) << round;
  }
}

TEST(Text, LastLine) {
  EXPECT_EQ(last_line("a\nb\nc\n\n"), "c");
  EXPECT_EQ(last_line("c"), "c");
  EXPECT_EQ(last_line("\n \n"), "");
}

}  // namespace
}  // namespace oarlock::test
