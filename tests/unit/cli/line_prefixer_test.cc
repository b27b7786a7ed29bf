#include "cli/launch/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "common/clock.h"
#include "common/files.h"

namespace oarlock::launch {
namespace {

using namespace std::chrono_literals;

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

struct Channel {
  FileDescriptor reader;
  FileDescriptor writer;
};

Channel open_channel(const std::string& kind) {
  int ends[2] = {-1, -1};
  const int failed = kind == "terminal" ? ::openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr)
                     : kind == "socket" ? ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends)
                                        : ::pipe(ends);
  if (failed != 0) throw std::system_error(errno, std::generic_category(), kind);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// Writes all text from the queue and reads it. Returns what the reader has received, together with earlier text.
std::string read_all(const Channel& channel, OutputQueue& queue) {
  ::fcntl(channel.reader.get(), F_SETFL, O_NONBLOCK);
  std::string text;
  std::string piece(1 << 20, '\0');
  for (ssize_t got = 0; got > 0 || !queue.empty();) {
    if (!queue.empty()) queue.write_some(SteadyTime{});
    got = ::read(channel.reader.get(), piece.data(), piece.size());
    if (got > 0) text.append(piece, 0, static_cast<size_t>(got));
  }
  return text;
}

TEST(OutputQueue, DoesNotBlockWithoutSpace) {
  for (const char* kind : {"pipe", "socket", "terminal"}) {
    SCOPED_TRACE(kind);
    const Channel channel = open_channel(kind);
    OutputQueue queue(channel.writer.get());
    fill(channel.writer.get());
    queue.push("line\n");
    queue.write_some(SteadyTime{});
    EXPECT_FALSE(queue.empty());
    EXPECT_FALSE(queue.closed());
    read_all(channel, queue);
    EXPECT_EQ(::fcntl(channel.writer.get(), F_GETFL) & O_NONBLOCK, 0) << "other programs share the descriptor";
  }
}

TEST(OutputQueue, ReportsHowLongTheReaderHasNotRead) {
  const Channel channel = open_channel("pipe");
  OutputQueue queue(channel.writer.get());
  const SteadyTime start{};
  queue.observe(start);
  EXPECT_EQ(queue.waiting_since(), std::nullopt);
  fill(channel.writer.get());
  queue.push("line\n");
  queue.observe(start + 1s);
  queue.write_some(start + 2s);
  queue.observe(start + 3s);
  EXPECT_EQ(queue.waiting_since(), start + 1s);
  read_all(channel, queue);
  queue.observe(start + 4s);
  EXPECT_EQ(queue.waiting_since(), std::nullopt);
}

TEST(OutputQueue, StatesTheNumberOfMissingBytes) {
  const Channel channel = open_channel("pipe");
  OutputQueue queue(channel.writer.get());
  while (!queue.full()) queue.push("line\n");
  queue.discard("ten bytes\n");
  queue.discard("ten bytes\n");
  std::string text = read_all(channel, queue);
  const std::string notice = "[20 bytes of output are missing here, because they were not read]\n";
  EXPECT_THAT(text, testing::HasSubstr("line\n" + notice));
  EXPECT_EQ(text.find(notice), text.rfind(notice)) << "once";
}

}  // namespace
}  // namespace oarlock::launch
