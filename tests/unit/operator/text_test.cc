#include "operator/core/text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace oarlock::test {
namespace {

using control::last_line;
using control::sanitize_line;
using control::to_reason;

TEST(Text, SanitizesToSingleLine) {
  EXPECT_EQ(sanitize_line("a\nb\tc\r\n"), "a b c");
  EXPECT_EQ(sanitize_line("Grüße"), "Grüße");
  EXPECT_EQ(sanitize_line("a\xff\xfe\x80z"), "a???z");
  EXPECT_EQ(sanitize_line("cut \xe2\x82"), "cut ??");
  EXPECT_EQ(sanitize_line("12345", 5), "12345");
  EXPECT_EQ(sanitize_line("123456", 5), "12...");
  EXPECT_EQ(sanitize_line("ääää", 7), "ää...");
  EXPECT_EQ(sanitize_line(""), "");
}

TEST(Text, RemovesControlCharacters) {
  EXPECT_EQ(sanitize_line("\x1b[31mred\x1b]0;title\x07"), " [31mred ]0;title");
  EXPECT_EQ(sanitize_line("a\u009b31mb"), "a 31mb") << "CSI as a single character";
  EXPECT_EQ(sanitize_line("a\u0085b\u2028c\u2029d"), "a b c d");
  EXPECT_EQ(sanitize_line("a\u202eb\u2066c\u2069d"), "a b c d") << "right-to-left override";
  EXPECT_EQ(sanitize_line("a\u200eb\u200fc\u061cd"), "a b c d") << "directional marks";
  EXPECT_EQ(sanitize_line("\u00a0\u2026\u2070"), "\u00a0\u2026\u2070");
  EXPECT_EQ(sanitize_line(std::string_view("a\0b", 3)), "a b");
}

TEST(Text, ReasonIsSingleWord) {
  EXPECT_EQ(to_reason("ConfigInvalid"), "ConfigInvalid");
  EXPECT_EQ(to_reason(std::string(60, 'a')), std::string(60, 'a'));
  for (const std::string& text : {std::string(), std::string(61, 'a'), std::string("two words"), std::string("a\nb"),
                                  std::string("9lives"), std::string("a\x1b[0m"), std::string("\xff")}) {
    EXPECT_EQ(to_reason(text), "") << text;
  }
}

// nlohmann's strict dump throws on invalid UTF-8, which makes it an independent reference.
TEST(Text, ResultIsUtf8AndBounded) {
  uint32_t state = 1;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes;
    for (int i = 0; i < 24; ++i) {
      state = state * 1664525 + 1013904223;
      bytes += static_cast<char>(state >> 24);
    }
    const std::string text = sanitize_line(bytes, 16);
    EXPECT_LE(text.size(), 16U);
    EXPECT_NO_THROW(static_cast<void>(nlohmann::json(text).dump())) << round;
  }
}

TEST(Text, ReturnsLastNonEmptyLine) {
  EXPECT_EQ(last_line("a\nb\nc\n\n"), "c");
  EXPECT_EQ(last_line("c"), "c");
  EXPECT_EQ(last_line("\n \n"), "");
}

}  // namespace
}  // namespace oarlock::test
