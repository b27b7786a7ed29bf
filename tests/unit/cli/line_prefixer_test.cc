#include "cli/launch/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/files.h"

namespace oarlock::launch {
namespace {

// Feeds the text in pieces of every size from one byte on; the result must not depend on it.
std::string prefixed(const std::string& text, int columns = 0,
                     LinePrefixer::ProgressLines progress_lines = LinePrefixer::ProgressLines::kShow) {
  std::string result;
  for (size_t piece = 1; piece <= text.size() + 1; ++piece) {
    LinePrefixer prefixer("> ", columns, progress_lines);
    std::string out;
    for (size_t i = 0; i < text.size(); i += piece) prefixer.feed(std::string_view(text).substr(i, piece), out);
    prefixer.finish(out);
    if (piece > 1) {
      EXPECT_EQ(out, result) << "in pieces of " << piece;
    }
    result = out;
  }
  return result;
}

TEST(LinePrefixer, PrefixesEachLine) { EXPECT_EQ(prefixed("a\nb\n"), "> a\n> b\n"); }
TEST(LinePrefixer, KeepsEmptyLines) { EXPECT_EQ(prefixed("\n\na\n"), "> \n> \n> a\n"); }
TEST(LinePrefixer, AddsNewlineToLastLine) { EXPECT_EQ(prefixed("a\nb"), "> a\n> b\n"); }
TEST(LinePrefixer, IgnoresEmptyInput) { EXPECT_EQ(prefixed(""), ""); }
TEST(LinePrefixer, IsBinarySafe) {
  const std::string bytes("\x00\xff\x1b[0m\r\x80\n\x00", 10);
  EXPECT_EQ(prefixed(bytes), "> " + bytes.substr(0, 9) + "> " + std::string(1, '\0') + "\n");
}
TEST(LinePrefixer, KeepsCarriageReturnsByDefault) { EXPECT_EQ(prefixed("1%\r2%\r3%\n"), "> 1%\r2%\r3%\n"); }
TEST(LinePrefixer, EndsLineAtCarriageReturnOnTerminal) {
  EXPECT_EQ(prefixed("1%\r2%\rdone\n", 80), "> 1%\x1b[K\r> 2%\x1b[K\r\x1b[K> done\n");
  EXPECT_EQ(prefixed("\r1%\r2%\n", 80), "> 1%\x1b[K\r\x1b[K> 2%\n");  // as tqdm writes them
}
TEST(LinePrefixer, TreatsCrLfAsOneLineEnd) { EXPECT_EQ(prefixed("a\r\nb\r\n", 80), "\x1b[K> a\r\n\x1b[K> b\r\n"); }
TEST(LinePrefixer, CutsProgressLineToWidth) {
  EXPECT_EQ(prefixed("123456789\r\n123456789\rx\n", 8), "\x1b[K> 123456789\r\n> 12345\x1b[K\r\x1b[K> x\n");
}
TEST(LinePrefixer, LeavesOutProgressLinesOfOtherRanks) {
  EXPECT_EQ(prefixed("1%\r2%\rdone\n", 80, LinePrefixer::ProgressLines::kLeaveOut), "\x1b[K> done\n");
}

TEST(LinePrefixer, BuffersIncompleteLine) {
  LinePrefixer prefixer("> ");
  std::string out;
  prefixer.feed("begin", out);
  EXPECT_EQ(out, "");
  prefixer.feed(" end\nnext", out);
  EXPECT_EQ(out, "> begin end\n");
}

TEST(LinePrefixer, SplitsOverlongLine) {
  LinePrefixer prefixer("> ");
  std::string out;
  const std::string piece(size_t{1} << 20, 'x');
  for (int i = 0; i < 40; ++i) prefixer.feed(piece, out);
  prefixer.finish(out);
  EXPECT_EQ(out.size(), 40 * piece.size() + 3 * 3);  // 16, 16 and 8 MiB, each with "> " and a newline
}

// ---- OutputQueue ---------------------------------------------------------------------------------------------------

// Fills a descriptor until it accepts no more bytes without blocking, as another program that shares it may do.
void fill(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  const std::string bytes(4096, 'x');
  while (::write(fd, bytes.data(), bytes.size()) > 0) {
  }
  ::fcntl(fd, F_SETFL, flags);
}

TEST(OutputQueue, DoesNotBlockWithoutSpace) {
  for (const bool is_socket : {false, true}) {
    int ends[2];
    ASSERT_EQ(is_socket ? ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : ::pipe(ends), 0);
    const FileDescriptor reader(ends[0]);
    const FileDescriptor writer(ends[1]);
    OutputQueue queue(writer.get());
    fill(writer.get());
    queue.push("line\n");
    queue.write_some();
    EXPECT_FALSE(queue.empty());
    EXPECT_FALSE(queue.closed());
    std::string taken(1 << 20, '\0');
    ASSERT_GT(::read(reader.get(), taken.data(), taken.size()), 0);
    queue.write_some();
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(::fcntl(writer.get(), F_GETFL) & O_NONBLOCK, 0) << "other programs share the descriptor";
  }
}

}  // namespace
}  // namespace oarlock::launch
