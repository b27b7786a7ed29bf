// TensorBoard's event files, the sink that writes them, and the access to files that other processes write.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <set>

#include "common/files.h"
#include "common/text.h"
#include "tests/support/full_disk.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tracking_events.h"
#include "trainer/tracking/encoding.h"
#include "trainer/tracking/event_file.h"
#include "trainer/tracking/run_files.h"
#include "trainer/tracking/sink.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::count_of;
using test::FullDisk;
using test::scalar_at;
using test::started;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

// ---- records and messages -------------------------------------------------------------------------------------------

TEST(EventFile, ComputesMaskedCrc32c) {
  EXPECT_EQ(masked_crc(""), 0xa282ead8U);
  // The CRC-32C of these digits is 0xe3069283 in every description of the polynomial.
  EXPECT_EQ(masked_crc("123456789"), ((0xe3069283U >> 15) | (0xe3069283U << 17)) + 0xa282ead8U);
}

TEST(EventFile, ReadsItsRecords) {
  const std::string file = frame_record("first") + frame_record("") + frame_record("third");
  std::string_view left = file;
  const ByteSource source = source_of(left);
  EXPECT_EQ(next_record(source), "first");
  EXPECT_EQ(next_record(source), "");
  EXPECT_EQ(next_record(source), "third");
  EXPECT_EQ(next_record(source), std::nullopt);
}

TEST(EventFile, StopsAtADamagedOrIncompleteRecord) {
  const std::string record = frame_record("some data");
  for (size_t size = 0; size < record.size(); ++size) {
    std::string_view part = std::string_view(record).substr(0, size);
    EXPECT_EQ(next_record(source_of(part)), std::nullopt) << size;
  }
  for (size_t i = 0; i < record.size(); ++i) {
    std::string damaged = record;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    std::string_view view = damaged;
    EXPECT_EQ(next_record(source_of(view)), std::nullopt) << i;
  }
}

TEST(EventFile, FindsStepsAndTags) {
  const std::optional<EventPoints> points = read_points(scalars_event(1, 7, {{{"loss", 1.5}, {"eval/loss", 2}}}));
  ASSERT_TRUE(points);
  EXPECT_EQ(points->step, 7);
  EXPECT_FALSE(points->is_session_start);
  EXPECT_THAT(points->tags, ElementsAre("loss", "eval/loss"));
  const std::optional<EventPoints> start = read_points(session_start_event(1, 7));
  ASSERT_TRUE(start);
  EXPECT_EQ(start->step, 8);
  EXPECT_TRUE(start->is_session_start);
  EXPECT_EQ(read_points("\x0a\xff\xff"), std::nullopt);
}

TEST(EventFile, HighestStepsObeyLaterSessions) {
  const TemporaryDirectory directory;
  const auto write = [&](const std::string& name, const std::string& content) {
    std::ofstream(directory.path() / name) << content;
  };
  write("events.out.tfevents.1.a", frame_record(session_start_event(1, 0)) +
                                       frame_record(scalars_event(1, 10, {{{"loss", 1}}})) +
                                       frame_record(scalars_event(1, 30, {{{"loss", 1}, {"old", 1}}})));
  write("events.out.tfevents.2.a", frame_record(session_start_event(2, 20)) +
                                       frame_record(scalars_event(2, 25, {{{"eval/loss", 1}}})) + "torn record");
  write("unrelated", frame_record(scalars_event(1, 99, {{{"loss", 1}}})));
  EXPECT_THAT(highest_steps(directory.path(), 40), UnorderedElementsAre(Pair("loss", 10), Pair("eval/loss", 25)));
  EXPECT_THAT(highest_steps(directory.path(), 15), ElementsAre(Pair("loss", 10)));
  EXPECT_THAT(highest_steps(directory.path() / "absent", 15), IsEmpty());
}

TEST(EventFile, NamesOfNewFilesFollowAllOthers) {
  // Names of an earlier version with a clock before 2001, names that another program may use, and present ones.
  for (const std::string other : {"86400", "9", "1795450851", "0000086400", "17954508510", "9223372036854775807", ""}) {
    const TemporaryDirectory directory;
    const std::string name = std::string(kEventFilePrefix) + other + ".host.1.oarlock";
    std::ofstream(directory.path() / name) << "";
    for (const int64_t now : {int64_t{0}, int64_t{86400}, int64_t{1700000000}, int64_t{1795450851}}) {
      const int64_t number = next_file_number(directory.path(), now);
      EXPECT_GE(number, now);
      const std::string stem = event_file_stem(number);
      EXPECT_GT(stem + ".a", name) << now;
      EXPECT_EQ(stem.size(), kEventFilePrefix.size() + 10);
    }
  }
  EXPECT_EQ(next_file_number("/nonexistent", 86400), 86400);
  EXPECT_EQ(event_file_stem(86400), "events.out.tfevents.0000086400");
}

TEST(Utf8, ReplacesInvalidBytesOnly) {
  struct Row {
    std::string text;
    std::string expected;
  };
  const std::string ascii = "a long name of a metric: time/checkpoint";
  std::vector<Row> rows = {{.text = "", .expected = ""},
                           {.text = ascii, .expected = ascii},
                           {.text = "\xc3\xa9\xe6\xad\xa3", .expected = "\xc3\xa9\xe6\xad\xa3"},
                           {.text = std::string("a\0b", 3), .expected = std::string("a\0b", 3)}};
  for (size_t place = 0; place <= ascii.size(); ++place) {
    rows.push_back({ascii.substr(0, place) + "\xe9" + ascii.substr(place),
                    ascii.substr(0, place) + "\uFFFD" + ascii.substr(place)});
    rows.push_back({ascii.substr(0, place) + "\xc3\xa9" + ascii.substr(place) + "\xc3",
                    ascii.substr(0, place) + "\xc3\xa9" + ascii.substr(place) + "\uFFFD"});
  }
  for (const Row& row : rows) {
    EXPECT_EQ(replace_invalid_utf8(row.text), row.expected);
    std::string replaced;
    const std::string_view valid = to_valid_utf8(row.text, replaced);
    EXPECT_EQ(valid, row.expected);
    EXPECT_EQ(valid.data() == row.text.data(), row.text == row.expected);  // without a copy
  }
}

TEST(EventFile, ReplacesBytesThatAreNotUtf8) {
  const std::optional<EventPoints> points =
      read_points(scalars_event(1, 7, {{{"caf\xe9", 1.5}, {"\xc3\xa9", 2}, {"\xe2\x82", 3}, {"\xed\xa0\x80", 4}}}));
  ASSERT_TRUE(points);
  EXPECT_THAT(points->tags, ElementsAre("caf\uFFFD", "\u00e9", "\uFFFD\uFFFD", "\uFFFD\uFFFD\uFFFD"));
}

// ---- files that other processes write -------------------------------------------------------------------------------

TEST(SequentialFile, ReadsPiecesOfAnySize) {
  const TemporaryDirectory directory;
  std::string content;
  for (int i = 0; content.size() < 1 << 20; ++i) content += std::to_string(i);
  std::ofstream(directory.path() / "file") << content;
  Result<SequentialFile> file = SequentialFile::open(directory.path() / "file");
  ASSERT_TRUE(file);
  std::string read;
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100'000}, size_t{1}, size_t{700'000}, size_t{1} << 40})
    read += file->read(size);
  EXPECT_EQ(read, content);
  EXPECT_EQ(file->read(1), "");
}

TEST(SequentialFile, EndsWhereAnotherProcessTruncates) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "file";
  std::ofstream(path) << std::string(4 << 20, 'x');
  Result<SequentialFile> file = SequentialFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->read(10).size(), 10);
  fs::resize_file(path, 100);
  size_t size = 10;
  while (const size_t got = file->read(1 << 16).size()) size += got;
  EXPECT_LT(size, 1 << 20);  // of what was read ahead
}

TEST(RunFiles, OnlyRegularFilesAreOpened) {
  const TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory.path() / "pipe").c_str(), 0600), 0);
  fs::create_directory(directory.path() / "directory");
  for (const char* name : {"pipe", "directory"}) {
    for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR | O_CREAT}) {
      const Result<FileDescriptor> file = open_regular_file(directory.path() / name, flags);
      ASSERT_FALSE(file) << name << flags;
      EXPECT_EQ(file.error().message, (directory.path() / name).string() + ": not a regular file");
    }
  }
  std::ofstream(directory.path() / "target") << "content";
  fs::create_symlink("target", directory.path() / "link");
  EXPECT_TRUE(open_regular_file(directory.path() / "link", O_RDONLY));
  EXPECT_FALSE(open_regular_file(directory.path() / "link", O_RDWR));
}

TEST(RunFiles, NewFilesReplaceLinksAndPipes) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "target") << "content";
  fs::create_symlink("target", directory.path() / "link");
  ASSERT_EQ(mkfifo((directory.path() / "pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "pipe"}) {
    const Result<FileDescriptor> file = create_new_file(directory.path() / name);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(write_all(file->get(), "new"), 0);
    EXPECT_EQ(fs::symlink_status(directory.path() / name).type(), fs::file_type::regular);
  }
  EXPECT_EQ(*read_file(directory.path() / "target"), "content");
  fs::create_directory(directory.path() / "directory");
  const Result<FileDescriptor> failed = create_new_file(directory.path() / "directory");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, testing::HasSubstr((directory.path() / "directory").string()));
}

TEST(Png, HasTheGivenPixels) {
  const std::vector<uint8_t> pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::string png = encode_png(pixels, 2, 2, 3);
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(png.substr(8, 18), std::string("\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x02\x08\x02", 18));
  const auto size = static_cast<uint8_t>(png[36]);  // of IDAT, whose length is below 256 here
  std::string rows(14, '\0');
  uLongf length = rows.size();
  ASSERT_EQ(
      uncompress(reinterpret_cast<Bytef*>(rows.data()), &length, reinterpret_cast<const Bytef*>(png.data()) + 41, size),
      Z_OK);
  EXPECT_EQ(rows, std::string("\0\x01\x02\x03\x04\x05\x06\0\x07\x08\x09\x0a\x0b\x0c", 14));
}

// ---- TensorBoard's sink ---------------------------------------------------------------------------------------------

class TensorboardSinkTest : public testing::Test {
 protected:
  // Writes the events of one attempt.
  void attempt(const std::vector<Event>& events) {
    const Result<size_t> written = make_sink()->write(events);
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(*written, events.size());
  }
  std::unique_ptr<Sink> make_sink(const Logger& logger = Logger::silent()) const {
    const SinkContext context{.directory = directory_.path() / "tracking", .logger = logger, .clock = clock_};
    return make_tensorboard_sink({}, context);
  }
  fs::path board() const { return directory_.path() / "tensorboard"; }
  std::set<fs::path> files() const {
    std::set<fs::path> out;
    for (const auto& entry : fs::directory_iterator(board())) out.insert(entry.path());
    return out;
  }
  // The file must consist of complete records.
  static std::vector<EventPoints> points_of(const fs::path& file) {
    const std::string content = *read_file(file);
    std::string_view left = content;
    std::vector<EventPoints> out;
    while (!left.empty()) {
      const auto record = next_record(source_of(left));
      EXPECT_TRUE(record) << "an incomplete record";
      const auto points = record ? read_points(*record) : std::nullopt;
      EXPECT_TRUE(points);
      if (points) out.push_back(*points);
    }
    return out;
  }
  std::vector<std::vector<int64_t>> steps_by_file(const std::string& tag) const {
    std::vector<std::vector<int64_t>> out;
    for (const fs::path& file : files()) {
      out.emplace_back();
      for (const EventPoints& points : points_of(file)) {
        if (std::count(points.tags.begin(), points.tags.end(), tag) > 0) out.back().push_back(points.step);
      }
    }
    return out;
  }

  RealClock clock_;
  TemporaryDirectory directory_;
};

TEST_F(TensorboardSinkTest, ResumesAfterTheRestartStep) {
  attempt({started(0), scalar_at(10), scalar_at(20), scalar_at(30)});
  attempt({started(20), scalar_at(20), scalar_at(30), scalar_at(40)});
  EXPECT_THAT(steps_by_file("loss"), ElementsAre(ElementsAre(10, 20, 30), ElementsAre(30, 40)));
  EXPECT_THAT(steps_by_file("config"), ElementsAre(ElementsAre(0), IsEmpty()));
  EXPECT_THAT(steps_by_file("_hparams_/session_start_info"), ElementsAre(ElementsAre(0), IsEmpty()));
}

TEST_F(TensorboardSinkTest, WritesARepeatedPointOnce) {
  attempt({started(0), scalar_at(10), scalar_at(10), scalar_at(5), scalar_at(10, 1, "other")});
  EXPECT_THAT(steps_by_file("loss"), ElementsAre(ElementsAre(10)));
  EXPECT_THAT(steps_by_file("other"), ElementsAre(ElementsAre(10)));
}

Event text_at(int64_t step, size_t size) {
  Event out = scalar_at(step);
  out.content = Text{"text", std::string(size, 'x')};
  return out;
}

TEST_F(TensorboardSinkTest, LosesNothingWhileTheDiskIsFull) {
  const std::unique_ptr<Sink> sink = make_sink();
  ASSERT_TRUE(sink->write(std::vector<Event>{started(0), scalar_at(10)}));
  {
    const FullDisk full(fs::file_size(*files().begin()) + 100);
    EXPECT_FALSE(sink->write(std::vector<Event>{text_at(20, 1 << 16)}));
    EXPECT_FALSE(sink->write(std::vector<Event>{scalar_at(30)}));
  }
  EXPECT_THAT(steps_by_file("loss"), ElementsAre(ElementsAre(10)));
  ASSERT_TRUE(sink->write(std::vector<Event>{scalar_at(40)}));
  EXPECT_THAT(steps_by_file("loss"), ElementsAre(ElementsAre(10, 30, 40)));
  EXPECT_THAT(steps_by_file("text"), ElementsAre(ElementsAre(20)));
}

TEST_F(TensorboardSinkTest, KeepsTheStartOfASessionWhileTheDiskIsFull) {
  attempt({started(0), scalar_at(10), scalar_at(20), scalar_at(30)});
  const std::unique_ptr<Sink> sink = make_sink();
  {
    const FullDisk full(0);
    EXPECT_FALSE(sink->write(std::vector<Event>{started(20), scalar_at(30)}));
    EXPECT_FALSE(sink->write(std::vector<Event>{scalar_at(40)}));
  }
  EXPECT_EQ(files().size(), 1);  // no empty ones
  ASSERT_TRUE(sink->write(std::vector<Event>{scalar_at(50)}));
  EXPECT_THAT(steps_by_file("loss"), ElementsAre(ElementsAre(10, 20, 30), ElementsAre(30, 40, 50)));
  const EventPoints start = points_of(*files().rbegin()).at(1);
  EXPECT_TRUE(start.is_session_start);
  EXPECT_EQ(start.step, 21);
}

TEST_F(TensorboardSinkTest, LimitsTheMemoryOfWaitingPoints) {
  testing::internal::CaptureStderr();
  const std::unique_ptr<Sink> sink = make_sink(Logger(LogFormat::kText, LogLevel::kInfo));
  ASSERT_TRUE(sink->write(std::vector<Event>{started(0)}));
  Event image = scalar_at(1);
  image.content = Image{"image", 1, 1, std::string(2 << 20, 'x')};
  Event finished = scalar_at(100);
  finished.content = RunFinished{
      .success = true, .resumes = false, .reason = "Completed", .message = "", .summary = {}, .time_table = ""};
  {
    const FullDisk full(fs::file_size(*files().begin()));
    EXPECT_FALSE(sink->write(std::vector<Event>{image}));
    for (int64_t step = 1; step <= 9; ++step) EXPECT_FALSE(sink->write(std::vector<Event>{text_at(step, 300 << 10)}));
    EXPECT_FALSE(sink->write(std::vector<Event>{finished}));
  }
  ASSERT_TRUE(sink->write(std::vector<Event>{scalar_at(200)}));
  EXPECT_EQ(count_of(testing::internal::GetCapturedStderr(), "tracking: points are dropped"), 1);
  EXPECT_THAT(steps_by_file("image"), ElementsAre(IsEmpty()));
  EXPECT_THAT(steps_by_file("text"), ElementsAre(ElementsAre(1, 2, 3)));
  EXPECT_THAT(steps_by_file("exit_reason"), ElementsAre(ElementsAre(100)));
  EXPECT_THAT(steps_by_file("loss"), ElementsAre(ElementsAre(200)));
}

TEST_F(TensorboardSinkTest, AcceptsLargeStepsAndAnyName) {
  constexpr int64_t kLarge = int64_t{1} << 40;
  attempt({started(0), scalar_at(kLarge, 1, "caf\xe9")});
  attempt({started(kLarge), scalar_at(kLarge, 1, "caf\xe9"), scalar_at(kLarge + 1, 1, "caf\xe9")});
  EXPECT_THAT(steps_by_file("caf\uFFFD"), ElementsAre(ElementsAre(kLarge), ElementsAre(kLarge + 1)));
}

TEST_F(TensorboardSinkTest, IgnoresAPipeAmongTheFiles) {
  fs::create_directory(board());
  const fs::path pipe = board() / "events.out.tfevents.0000000001.pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  attempt({started(0), scalar_at(10)});
  fs::remove(pipe);
  EXPECT_THAT(steps_by_file("loss"), ElementsAre(ElementsAre(10)));
}

TEST_F(TensorboardSinkTest, ContinuesWhenTheDirectoryCanBeCreated) {
  std::ofstream(board()) << "a file";
  const std::unique_ptr<Sink> sink = make_sink();
  const Result<size_t> failed = sink->write(std::vector<Event>{started(0), scalar_at(10)});
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, testing::HasSubstr(board().string()));
  fs::remove(board());
  ASSERT_TRUE(sink->write(std::vector<Event>{scalar_at(20)}));
  EXPECT_THAT(steps_by_file("loss"), ElementsAre(ElementsAre(10, 20)));
}

}  // namespace
}  // namespace oarlock
