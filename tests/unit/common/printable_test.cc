#include <gtest/gtest.h>

#include "common/text.h"

namespace oarlock {
namespace {

TEST(Printable, EscapesTerminalControls) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable("a\n\r\tb"), "a\\n\\r\\tb");
  EXPECT_EQ(printable(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x9b[2J"), "\\u009b[2J");    // C1: a terminal's one-character ESC [
  EXPECT_EQ(printable("x\xe2\x80\xae!"), "x\\u202e!");  // right-to-left override
  EXPECT_EQ(printable("\xe2\x80\xa8"), "\\u2028");      // line separator
  EXPECT_EQ(printable("h\xc3\xa9 \xf0\x9f\x9a\xa2 \\n"), "h\xc3\xa9 \xf0\x9f\x9a\xa2 \\n");
}

TEST(Printable, EscapesBidirectionalControls) {
  for (const char32_t code : {0x061C, 0x200E, 0x200F, 0x202A, 0x202E, 0x2066, 0x2069}) {
    EXPECT_TRUE(is_control_character(code)) << static_cast<uint32_t>(code);
  }
  for (const char32_t code : {0x0020, 0x00A0, 0x0627, 0x2010, 0x2030, 0x2065, 0x206A, 0xFEFF}) {
    EXPECT_FALSE(is_control_character(code)) << static_cast<uint32_t>(code);
  }
}

TEST(Printable, EscapesInvalidUtf8) {
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
}

TEST(Printable, DetectsUnprintableText) {
  EXPECT_TRUE(is_printable("caf\xc3\xa9"));
  EXPECT_FALSE(is_printable("a\x1b"));
  EXPECT_FALSE(is_printable("\xc3"));
}

TEST(Printable, KeepsLineFeeds) { EXPECT_EQ(printable_lines("a\x1b\nb\r\n"), "a\\x1b\nb\\r\n"); }

TEST(Printable, LongLinesKeepTheirBeginningAndEnd) {
  const std::string whole(kMaxMessageLine, 'x');
  EXPECT_EQ(abridged(whole), whole);
  const std::string line = "file.json: '" + std::string(10'000'000, 'x') + "' is not a number; fetch it again";
  const std::string text = printable_lines(line + "\nsecond");
  EXPECT_LT(text.size(), kMaxMessageLine + 100);
  EXPECT_TRUE(text.starts_with("file.json: 'xxx")) << text;
  EXPECT_TRUE(text.ends_with("x' is not a number; fetch it again\nsecond")) << text;
  EXPECT_NE(text.find(" bytes are omitted) ... "), std::string::npos);
}

TEST(Printable, LongLinesAreCutBetweenCharacters) {
  for (const char* first : {"", "x", "xx"}) {
    std::string line = first;
    for (int i = 0; i < 2000; ++i) line += "\u20ac";
    EXPECT_TRUE(is_printable(abridged(line))) << first;
  }
}

TEST(Printable, TruncatesByCharacters) {
  EXPECT_EQ(shortened("abcd", 4), "abcd");
  EXPECT_EQ(shortened("abcde", 4), "abcd...");
  EXPECT_EQ(shortened("\xc3\xa9\xc3\xa9\xc3\xa9", 2), "\xc3\xa9\xc3\xa9...");
  EXPECT_EQ(shortened(std::string(1'000'000, 'x')).size(), 83u);
}

TEST(TextFormats, FormatsSizes) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(512), "512 B");
  EXPECT_EQ(size_text(1024), "1 KiB");
  EXPECT_EQ(size_text(1.5 * 1024 * 1024 * 1024), "1.5 GiB");
  EXPECT_EQ(size_text(9.96 * 1024), "10 KiB");
  EXPECT_EQ(size_text(64.3 * 1024 * 1024), "64 MiB");
  EXPECT_EQ(size_text(-1), "");
}

TEST(TextFormats, FormatsHexadecimalDigits) {
  const unsigned char bytes[] = {0x00, 0x0f, 0xff};
  EXPECT_EQ(to_hex(bytes), "000fff");
}

}  // namespace
}  // namespace oarlock
