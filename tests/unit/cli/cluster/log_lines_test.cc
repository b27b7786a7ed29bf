#include "cli/cluster/log_lines.h"

#include <gmock/gmock.h>

namespace oarlock::cli {
namespace {

constexpr char kFirst[] = "2026-11-23T06:50:00.1Z ";
constexpr char kSecond[] = "2026-11-23T06:50:00.12Z ";
constexpr char kThird[] = "2026-11-23T06:50:01Z ";

std::string converted(LogFormat format, const std::string& log, size_t piece = SIZE_MAX) {
  LogLines lines(std::move(format));
  std::string out;
  for (size_t at = 0; at < log.size(); at += std::min(piece, log.size() - at))
    lines.feed(std::string_view(log).substr(at, piece), out);
  lines.finish(out);
  return out;
}

TEST(LogLines, PrefixesLinesWithTheirRank) {
  const std::string log = std::string(kFirst) + "one\n" + kSecond + "\n" + kThird + "no end";
  const std::string expected = "[rank 3] one\n[rank 3] \n[rank 3] no end\n";
  EXPECT_EQ(converted({.node_rank = 3}, log), expected);
  EXPECT_EQ(converted({.node_rank = 3}, log, 1), expected);
  EXPECT_EQ(converted({.node_rank = 3}, log, 7), expected);
}

TEST(LogLines, UsesPrefixOfLauncher) {
  const std::string log = std::string(kFirst) + "[RANK 5] one\n" + kSecond + "launcher\n" + kThird + "[RANK 4] two\n";
  EXPECT_EQ(converted({.node_rank = 2, .processes_per_node = 2}, log),
            "[rank 5] one\n[node 2] launcher\n[rank 4] two\n");
  EXPECT_EQ(converted({.node_rank = 2, .processes_per_node = 2, .rank = 4}, log), "[rank 4] two\n");
  EXPECT_EQ(converted({.node_rank = 2, .processes_per_node = 2, .has_prefix = false}, log), "one\nlauncher\ntwo\n");
}

TEST(LogLines, ShowsTimestampsOnRequest) {
  EXPECT_EQ(converted({.has_prefix = false, .shows_timestamps = true}, std::string(kFirst) + "a b\n"),
            std::string(kFirst) + "a b\n");
  EXPECT_EQ(converted({.has_prefix = false}, "no timestamp here at all\n"), "no timestamp here at all\n");
}

TEST(LogLines, TimestampsCannotControlTerminal) {
  const LogFormat format{.has_prefix = false, .shows_timestamps = true, .is_terminal = true};
  EXPECT_EQ(converted(format, "2026-11-23T06:50:00.1Z\x1b]0;title\x07 text\n"),
            "2026-11-23T06:50:00.1Z\\x1b]0;title\\x07 text\n");
  EXPECT_EQ(converted(format, "2026-11-23T06:50:00.1+01:00 text\n"), "2026-11-23T06:50:00.1+01:00 text\n");
}

TEST(LogLines, SkipsKnownLinesAfterRestart) {
  LogLines lines({.has_prefix = false});
  std::string out;
  lines.feed(std::string(kFirst) + "one\n" + kSecond + "two\n" + kThird + "cut off by the conn", out);
  EXPECT_EQ(out, "one\ntwo\n");
  EXPECT_EQ(lines.last_timestamp() + " ", kSecond);
  lines.restart();
  out.clear();
  lines.feed(std::string(kFirst) + "one\n" + kSecond + "two\n" + kThird + "three\n", out);
  EXPECT_EQ(out, "three\n");
}

TEST(LogLines, BoundsLineWithoutEnd) {
  const std::string endless(5 * LogLines::kMaxLineBytes / 2, 'x');
  LogLines lines({.node_rank = 1});
  std::string out;
  lines.feed(kFirst + endless + "\n", out);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 3);
  EXPECT_EQ(std::count(out.begin(), out.end(), 'x'), static_cast<std::ptrdiff_t>(endless.size()));
}

TEST(LogLines, LongestLineIsOneLineInAnyPieces) {
  const std::string longest(LogLines::kMaxLineBytes, 'x');
  for (const size_t piece : {SIZE_MAX, LogLines::kMaxLineBytes, size_t{256}, size_t{1}})
    EXPECT_EQ(converted({.has_prefix = false}, longest + "\nnext\n", piece), longest + "\nnext\n");
}

TEST(LogLines, SkipsRestOfKnownLongLine) {
  LogLines lines({.has_prefix = false});
  const std::string long_line = kFirst + std::string(2 * LogLines::kMaxLineBytes, 'x') + "\n";
  std::string out;
  lines.feed(long_line, out);
  lines.restart();
  out.clear();
  lines.feed(long_line + kSecond + "next\n", out);
  EXPECT_EQ(out, "next\n");
}

TEST(LogLines, ChangesNoBytesOfFiles) {
  const std::string text = "\x1b[31mred\x1b[0m\t100%\r\xff\x01";
  EXPECT_EQ(converted({.has_prefix = false}, kFirst + text + "\n"), text + "\n");
}

TEST(LogLines, IsSafeForTerminals) {
  const LogFormat format{.has_prefix = false, .is_terminal = true};
  EXPECT_EQ(converted(format, std::string(kFirst) + "\x1b[1;31mred\x1b[0m text\n"), "red text\n");
  EXPECT_EQ(converted(format, std::string(kFirst) + " 50%\r100%\r\n"), "100%\n");
  EXPECT_EQ(converted(format, std::string(kFirst) + "a\tb\n"), "a    b\n");
  EXPECT_EQ(converted(format, std::string(kFirst) + "\x1b[2J\x1b]0;title\x07 \xff\xE2\x80\xAE\n"),
            "\\x1b[2J\\x1b]0;title\\x07 \\xff\\u202e\n");
  EXPECT_EQ(converted(format, std::string(kFirst) + "\x1b[\n"), "\\x1b[\n");
}

}  // namespace
}  // namespace oarlock::cli
