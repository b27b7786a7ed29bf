// What a run reports: event files, the journal of undelivered events, and the tracker between them.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "common/files.h"
#include "tests/support/full_disk.h"
#include "tests/support/temporary_folder.h"
#include "trainer/tracking/event_codec.h"
#include "trainer/tracking/event_file.h"
#include "trainer/tracking/folder_claim.h"
#include "trainer/tracking/journal.h"
#include "trainer/tracking/png.h"
#include "trainer/tracking/run_files.h"
#include "trainer/tracking/tensorboard_sink.h"
#include "trainer/tracking/tracker.h"

namespace oarlock {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using test::FullDisk;
using test::TemporaryFolder;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr auto kPatience = 120s;
constexpr auto kClaimInterval = 20ms;

Event scalar_at(int64_t step, double value = 0.5, const std::string& name = "loss") {
  return {.time = SystemTime(std::chrono::seconds(1700000000)), .step = step, .content = Scalars{{{name, value}}}};
}

Event started(int64_t restart_step) {
  RunStarted run;
  run.name = "run";
  run.restart_step = restart_step;
  run.config = {{"optimizer", {{"lr", 0.1}}}, {"epochs", nullptr}};
  run.derived = {{"ddp/world_size", 2}};
  return {.time = SystemTime(std::chrono::seconds(1700000000)), .step = restart_step, .content = run};
}

std::vector<int64_t> steps_of(const std::vector<Event>& events) {
  std::vector<int64_t> out;
  for (const Event& event : events) out.push_back(event.step);
  return out;
}

// ---- records and messages ------------------------------------------------------------------------------------------

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
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& content) {
    std::ofstream(folder.path() / name) << content;
  };
  write("events.out.tfevents.1.a", frame_record(session_start_event(1, 0)) +
                                       frame_record(scalars_event(1, 10, {{{"loss", 1}}})) +
                                       frame_record(scalars_event(1, 30, {{{"loss", 1}, {"old", 1}}})));
  write("events.out.tfevents.2.a", frame_record(session_start_event(2, 20)) +
                                       frame_record(scalars_event(2, 25, {{{"eval/loss", 1}}})) + "torn record");
  write("unrelated", frame_record(scalars_event(1, 99, {{{"loss", 1}}})));
  EXPECT_THAT(highest_steps(folder.path(), 40), UnorderedElementsAre(Pair("loss", 10), Pair("eval/loss", 25)));
  EXPECT_THAT(highest_steps(folder.path(), 15), ElementsAre(Pair("loss", 10)));
  EXPECT_THAT(highest_steps(folder.path() / "absent", 15), IsEmpty());
}

TEST(EventFile, NamesOfNewFilesFollowAllOthers) {
  // As an earlier version wrote them with a clock before 2001, as another program may write them, and as they are.
  for (const std::string other : {"86400", "9", "1795450851", "0000086400", "17954508510", "9223372036854775807", ""}) {
    const TemporaryFolder folder;
    const std::string name = std::string(kEventFilePrefix) + other + ".host.1.oarlock";
    std::ofstream(folder.path() / name) << "";
    for (const int64_t now : {int64_t{0}, int64_t{86400}, int64_t{1700000000}, int64_t{1795450851}}) {
      const int64_t number = next_file_number(folder.path(), now);
      EXPECT_GE(number, now);
      const std::string stem = event_file_stem(number);
      EXPECT_GT(stem + ".a", name) << now;
      EXPECT_EQ(stem.size(), kEventFilePrefix.size() + 10);
    }
  }
  EXPECT_EQ(next_file_number("/nonexistent", 86400), 86400);
  EXPECT_EQ(event_file_stem(86400), "events.out.tfevents.0000086400");
}

TEST(EventFile, ReplacesBytesThatAreNotUtf8) {
  const std::optional<EventPoints> points =
      read_points(scalars_event(1, 7, {{{"caf\xe9", 1.5}, {"\xc3\xa9", 2}, {"\xe2\x82", 3}, {"\xed\xa0\x80", 4}}}));
  ASSERT_TRUE(points);
  EXPECT_THAT(points->tags, ElementsAre("caf\uFFFD", "\u00e9", "\uFFFD\uFFFD", "\uFFFD\uFFFD\uFFFD"));
}

// ---- files that other processes write ------------------------------------------------------------------------------

TEST(SequentialFile, ReadsPiecesOfAnySize) {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; content.size() < 1 << 20; ++i) content += std::to_string(i);
  std::ofstream(folder.path() / "file") << content;
  Result<SequentialFile> file = SequentialFile::open(folder.path() / "file");
  ASSERT_TRUE(file);
  std::string read;
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100'000}, size_t{1}, size_t{700'000}, size_t{1} << 40})
    read += file->read(size);
  EXPECT_EQ(read, content);
  EXPECT_EQ(file->read(1), "");
}

TEST(SequentialFile, EndsWhereAnotherProcessTruncates) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "file";
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
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  fs::create_directory(folder.path() / "folder");
  for (const char* name : {"pipe", "folder"}) {
    for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR | O_CREAT}) {
      const Result<FileDescriptor> file = open_regular_file(folder.path() / name, flags);
      ASSERT_FALSE(file) << name << flags;
      EXPECT_EQ(file.error().message, (folder.path() / name).string() + ": not a regular file");
    }
  }
  std::ofstream(folder.path() / "target") << "content";
  fs::create_symlink("target", folder.path() / "link");
  EXPECT_TRUE(open_regular_file(folder.path() / "link", O_RDONLY));
  EXPECT_FALSE(open_regular_file(folder.path() / "link", O_RDWR));
}

TEST(RunFiles, NewFilesReplaceLinksAndPipes) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "target") << "content";
  fs::create_symlink("target", folder.path() / "link");
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "pipe"}) {
    const Result<FileDescriptor> file = create_new_file(folder.path() / name);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(write_all(file->get(), "new"), 0);
    EXPECT_EQ(fs::symlink_status(folder.path() / name).type(), fs::file_type::regular);
  }
  EXPECT_EQ(*read_file(folder.path() / "target"), "content");
  fs::create_directory(folder.path() / "folder");
  const Result<FileDescriptor> failed = create_new_file(folder.path() / "folder");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, testing::HasSubstr((folder.path() / "folder").string()));
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

// ---- the journal ---------------------------------------------------------------------------------------------------

TEST(EventCodec, KeepsEveryMember) {
  RunStarted run = std::get<RunStarted>(started(3).content);
  run.job = "job";
  run.uid = "uid";
  run.attempt = 2;
  run.versions = {{"libtorch", "2"}};
  Histogram histogram{
      .name = "h", .min = -1, .max = 2, .count = 3, .sum = 1, .sum_squares = 5, .limits = {0, 2}, .counts = {1, 2}};
  const RunFinished finished{.success = true,
                             .resumes = false,
                             .reason = "Completed",
                             .message = "m",
                             .summary = {{"a", 0.1}},
                             .time_table = "t"};
  Event event = scalar_at(4, 0.1);
  EXPECT_EQ(decode_event(encode_event(event)), event);
  for (const auto& content : std::vector<decltype(Event::content)>{
           run, histogram, Text{"t", "text"}, Image{"i", 2, 3, std::string("\0\xff", 2)}, finished}) {
    event.content = content;
    EXPECT_EQ(decode_event(encode_event(event)), event) << content.index();
  }
  const std::optional<Event> nan = decode_event(encode_event(scalar_at(1, std::nan(""))));
  ASSERT_TRUE(nan);
  EXPECT_TRUE(std::isnan(std::get<Scalars>(nan->content).values.at(0).second));
  EXPECT_EQ(decode_event("no CBOR"), std::nullopt);
}

std::unique_ptr<Journal> open_journal(const fs::path& folder, uint64_t max_bytes = 1 << 30) {
  Result<std::unique_ptr<Journal>> journal = Journal::open(folder, "sink", max_bytes);
  EXPECT_TRUE(journal) << journal.error().message;
  return std::move(*journal);
}

TEST(Journal, KeepsUndeliveredEventsForTheNextProcess) {
  for (const bool is_on_disk : {true, false}) {
    const TemporaryFolder folder;
    const fs::path path = is_on_disk ? folder.path() / "tracking" : fs::path();
    std::unique_ptr<Journal> journal = open_journal(path);
    EXPECT_TRUE(journal->is_empty());
    ASSERT_TRUE(journal->append({encode_event(scalar_at(1)), encode_event(scalar_at(2)), encode_event(scalar_at(3))}));
    Result<Journal::Batch> batch = journal->read(2, 1 << 20);
    ASSERT_TRUE(batch);
    EXPECT_THAT(steps_of(batch->events), ElementsAre(1, 2));
    ASSERT_TRUE(journal->discard(batch->ends[0]));
    if (is_on_disk) journal = open_journal(path);
    batch = journal->read(10, 1 << 20);
    ASSERT_TRUE(batch);
    EXPECT_THAT(steps_of(batch->events), ElementsAre(2, 3));
    ASSERT_TRUE(journal->discard(batch->ends.back()));
    EXPECT_TRUE(journal->is_empty());
  }
}

TEST(Journal, DropsAnEventThatAKilledProcessLeftIncomplete) {
  const TemporaryFolder folder;
  ASSERT_TRUE(open_journal(folder.path())->append({encode_event(scalar_at(1)), encode_event(scalar_at(2))}));
  const fs::path file = folder.path() / "sink.journal";
  const std::string whole = *read_file(file);
  for (size_t lost = 1; lost < 40; ++lost) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << whole.substr(0, whole.size() - lost);
    const std::unique_ptr<Journal> journal = open_journal(folder.path());
    ASSERT_TRUE(journal->append({encode_event(scalar_at(3))}));
    const Result<Journal::Batch> batch = journal->read(10, 1 << 20);
    ASSERT_TRUE(batch);
    EXPECT_THAT(steps_of(batch->events), ElementsAre(1, 3)) << lost;
  }
}

std::vector<int64_t> undelivered_steps(const fs::path& folder) {
  const std::unique_ptr<Journal> journal = open_journal(folder);
  Result<Journal::Batch> batch = journal->read(100, 1 << 20);
  EXPECT_TRUE(batch);
  return steps_of(batch->events);
}

// Events 1 to 5, of which the first was delivered, and the position in the file at which each of them ends.
struct JournalFiles {
  std::string journal;
  std::string delivered;
  std::vector<size_t> ends;
};

JournalFiles write_journal(const fs::path& folder) {
  JournalFiles out;
  {
    const std::unique_ptr<Journal> journal = open_journal(folder);
    for (int64_t step = 1; step <= 5; ++step) {
      EXPECT_TRUE(journal->append({encode_event(scalar_at(step))}));
      out.ends.push_back(fs::file_size(folder / "sink.journal"));
    }
    const Result<Journal::Batch> batch = journal->read(1, 1);
    EXPECT_TRUE(batch && journal->discard(batch->ends.at(0)));
  }
  out.journal = *read_file(folder / "sink.journal");
  out.delivered = *read_file(folder / "sink.delivered");
  return out;
}

void restore(const fs::path& folder, const std::string& journal, const std::string& delivered) {
  std::ofstream(folder / "sink.journal", std::ios::binary | std::ios::trunc) << journal;
  std::ofstream(folder / "sink.delivered", std::ios::binary | std::ios::trunc) << delivered;
}

TEST(Journal, ADamagedByteCostsItsEventOnly) {
  const TemporaryFolder folder;
  const JournalFiles files = write_journal(folder.path());
  const size_t first_begin = files.ends[0] - (files.ends[1] - files.ends[0]);  // all events have the same size
  for (size_t i = 0; i < files.journal.size(); ++i) {
    std::string damaged = files.journal;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 == 0 ? 0x01 : 0xff));
    restore(folder.path(), damaged, files.delivered);
    std::vector<int64_t> expected = {2, 3, 4, 5};
    if (i < first_begin) expected.insert(expected.begin(), 1);  // without a valid head, everything is delivered again
    for (size_t event = 1; event < 5; ++event) {
      if (i >= files.ends[event - 1] && i < files.ends[event]) std::erase(expected, static_cast<int64_t>(event) + 1);
    }
    ASSERT_EQ(undelivered_steps(folder.path()), expected) << "byte " << i;
    ASSERT_EQ(undelivered_steps(folder.path()), expected) << "byte " << i << ", opened again";
  }
}

TEST(Journal, DamageWhileItIsOpenCostsItsEventOnly) {
  const TemporaryFolder folder;
  const JournalFiles files = write_journal(folder.path());
  const std::unique_ptr<Journal> journal = open_journal(folder.path());
  std::fstream file(folder.path() / "sink.journal", std::ios::binary | std::ios::in | std::ios::out);
  const size_t first_size = files.ends[1] - files.ends[0];  // of the event that was removed when the journal was opened
  file.seekp(static_cast<std::streamoff>(files.ends[2] - first_size) - 3);
  file << "damage" << std::flush;  // the end of one event and the head of the next
  ASSERT_TRUE(journal->append({encode_event(scalar_at(6))}));
  const Result<Journal::Batch> batch = journal->read(100, 1 << 20);
  ASSERT_TRUE(batch);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(2, 5, 6));
  ASSERT_TRUE(journal->discard(batch->ends.back()));
  EXPECT_TRUE(journal->is_empty());
}

TEST(Journal, KeepsTheEventsBeforeATornEnd) {
  const TemporaryFolder folder;
  const JournalFiles files = write_journal(folder.path());
  for (size_t size = 0; size < files.journal.size(); ++size) {
    for (const bool has_zeros : {false, true}) {  // some file systems extend a file before they write its data
      std::string torn = files.journal.substr(0, size);
      if (has_zeros) torn.resize(files.journal.size());
      restore(folder.path(), torn, files.delivered);
      const std::unique_ptr<Journal> journal = open_journal(folder.path());
      ASSERT_TRUE(journal->append({encode_event(scalar_at(9))}));
      Result<Journal::Batch> batch = journal->read(100, 1 << 20);
      ASSERT_TRUE(batch);
      std::vector<int64_t> expected;
      // An event whose missing bytes are zeros, too, is complete.
      const auto is_complete = [&](size_t event) {
        return torn.starts_with(files.journal.substr(0, files.ends[event]));
      };
      for (size_t event = 1; event < 5 && is_complete(event); ++event)
        expected.push_back(static_cast<int64_t>(event) + 1);
      expected.push_back(9);
      ASSERT_EQ(steps_of(batch->events), expected) << size;
    }
  }
}

TEST(Journal, DeliversAgainIfThePositionIsDamaged) {
  const TemporaryFolder folder;
  const JournalFiles files = write_journal(folder.path());
  for (size_t i = 0; i < files.delivered.size(); ++i) {
    std::string damaged = files.delivered;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    restore(folder.path(), files.journal, damaged);
    ASSERT_THAT(undelivered_steps(folder.path()), ElementsAre(1, 2, 3, 4, 5)) << i;
    restore(folder.path(), files.journal, files.delivered.substr(0, i));
    ASSERT_THAT(undelivered_steps(folder.path()), ElementsAre(1, 2, 3, 4, 5)) << i;
  }
}

TEST(Journal, RemovesDeliveredEventsFromTheFile) {
  const TemporaryFolder folder;
  Event large = scalar_at(1);
  large.content = Text{"text", std::string(1 << 18, 'x')};
  std::unique_ptr<Journal> journal = open_journal(folder.path());
  for (int64_t i = 0; i < 40; ++i) {
    large.step = i;
    ASSERT_TRUE(journal->append({encode_event(large)}));
    const Result<Journal::Batch> batch = journal->read(1, 1);
    ASSERT_TRUE(batch);
    EXPECT_THAT(steps_of(batch->events), ElementsAre(i));
    ASSERT_TRUE(journal->discard(batch->ends.back()));
    if (i % 7 == 0) journal = open_journal(folder.path());
  }
  EXPECT_LT(fs::file_size(folder.path() / "sink.journal"), 3U << 20);
}

TEST(Journal, HasALimit) {
  const TemporaryFolder folder;
  const std::unique_ptr<Journal> journal = open_journal(folder.path(), 200);
  const std::string event = encode_event(scalar_at(1));
  ASSERT_TRUE(journal->append({event}));
  const Result<void> full = journal->append({event, event, event, event});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ExitCode::kUnavailable);
  EXPECT_TRUE(journal->append({event, event, event, event}, /*beyond_limit=*/true));
}

TEST(Journal, KeepsAFileOfAnotherFormatAside) {
  const TemporaryFolder folder;
  const std::string other = "oarlock\1" + std::string(100, 'x');
  for (const char* kept : {"sink.journal.unreadable", "sink.journal.unreadable.1"}) {
    std::ofstream(folder.path() / "sink.journal", std::ios::binary | std::ios::trunc) << other;
    const std::unique_ptr<Journal> journal = open_journal(folder.path());
    EXPECT_THAT(journal->warning(), testing::HasSubstr(kept));
    EXPECT_EQ(*read_file(folder.path() / kept), other);
    EXPECT_TRUE(journal->is_empty());
    ASSERT_TRUE(journal->append({encode_event(scalar_at(1))}));
  }
  EXPECT_THAT(undelivered_steps(folder.path()), ElementsAre(1));
  EXPECT_THAT(open_journal(folder.path())->warning(), IsEmpty());
}

TEST(Journal, ReplacesPipesAndLinks) {
  for (const char* name : {"sink.journal", "sink.journal.new", "sink.delivered", "sink.delivered.new"}) {
    for (const bool is_pipe : {true, false}) {
      const TemporaryFolder folder;
      const fs::path path = folder.path() / name;
      std::ofstream(folder.path() / "target") << "content";
      if (is_pipe) {
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
      } else {
        fs::create_symlink("target", path);
      }
      std::unique_ptr<Journal> journal = open_journal(folder.path());
      ASSERT_TRUE(journal->append({encode_event(scalar_at(1)), encode_event(scalar_at(2))}));
      if (std::strcmp(name, "sink.journal") == 0) {
        EXPECT_THAT(journal->warning(), testing::HasSubstr(path.string() + ": is not a regular file"));
      } else {
        EXPECT_THAT(journal->warning(), IsEmpty());
      }
      journal.reset();
      EXPECT_THAT(undelivered_steps(folder.path()), ElementsAre(1, 2)) << name;
      EXPECT_EQ(*read_file(folder.path() / "target"), "content") << name;
    }
  }
}

TEST(Journal, ReportsWhatIsDamaged) {
  const TemporaryFolder folder;
  const JournalFiles files = write_journal(folder.path());
  std::string damaged = files.journal;
  damaged[files.ends[2] - 1] ^= 1;
  restore(folder.path(), damaged, files.delivered);
  const std::unique_ptr<Journal> journal = open_journal(folder.path());
  EXPECT_THAT(journal->warning(), testing::HasSubstr(fmt::format("{} bytes", files.ends[2] - files.ends[1])));
  const Result<Journal::Batch> batch = journal->read(100, 1 << 20);
  ASSERT_TRUE(batch);
  EXPECT_TRUE(batch->is_incomplete);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(2, 4, 5));
}

TEST(Journal, ATornEndIsNotDamage) {
  const TemporaryFolder folder;
  const JournalFiles files = write_journal(folder.path());
  restore(folder.path(), files.journal.substr(0, files.journal.size() - 3), files.delivered);
  EXPECT_THAT(open_journal(folder.path())->warning(), IsEmpty());
}

// Appends texts of one MiB, with the steps 1 to `count`, and adds a hard link to the file.
void write_texts(const fs::path& folder, int64_t count) {
  const std::unique_ptr<Journal> journal = open_journal(folder);
  Event event = scalar_at(1);
  event.content = Text{"text", std::string(1 << 20, 'x')};
  for (event.step = 1; event.step <= count; ++event.step) ASSERT_TRUE(journal->append({encode_event(event)}));
  fs::create_hard_link(folder / "sink.journal", folder / "link");
}

TEST(Journal, ContinuesALargeFileInPlace) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_texts(folder.path(), 17));
  std::unique_ptr<Journal> journal = open_journal(folder.path());
  EXPECT_TRUE(fs::equivalent(folder.path() / "link", folder.path() / "sink.journal"));
  Result<Journal::Batch> batch = journal->read(5, 100 << 20);
  ASSERT_TRUE(batch);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(1, 2, 3, 4, 5));
  ASSERT_TRUE(journal->discard(batch->ends.back()));
  ASSERT_TRUE(journal->append({encode_event(scalar_at(18))}));
  journal = open_journal(folder.path());  // what is left is small
  EXPECT_FALSE(fs::equivalent(folder.path() / "link", folder.path() / "sink.journal"));
  batch = journal->read(100, 100 << 20);
  ASSERT_TRUE(batch);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18));
}

TEST(Journal, TakesNoSpaceThatIsMissing) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_texts(folder.path(), 3));
  Result<std::unique_ptr<Journal>> journal = [&] {
    const FullDisk full(1 << 20);
    return Journal::open(folder.path(), "sink", 1 << 30);
  }();
  ASSERT_TRUE(journal) << journal.error().message;
  EXPECT_FALSE(fs::exists(folder.path() / "sink.journal.new"));
  ASSERT_TRUE((*journal)->append({encode_event(scalar_at(4))}));
  const Result<Journal::Batch> batch = (*journal)->read(100, 100 << 20);
  ASSERT_TRUE(batch);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(1, 2, 3, 4));
}

TEST(Journal, AnEarlierProcessCannotChangeIt) {
  const TemporaryFolder folder;
  const std::unique_ptr<Journal> earlier = open_journal(folder.path());
  ASSERT_TRUE(earlier->append({encode_event(scalar_at(1)), encode_event(scalar_at(2))}));
  const Result<Journal::Batch> batch = earlier->read(1, 1);
  ASSERT_TRUE(batch);
  const std::unique_ptr<Journal> later = open_journal(folder.path());
  static_cast<void>(earlier->append({encode_event(scalar_at(3))}));
  static_cast<void>(earlier->discard(batch->ends.at(0)));
  ASSERT_TRUE(later->append({encode_event(scalar_at(4))}));
  EXPECT_THAT(undelivered_steps(folder.path()), ElementsAre(1, 2, 4));
}

// ---- the tracker ---------------------------------------------------------------------------------------------------

// A server that the test controls.
class FakeServer {
 public:
  enum class Answer { kOk, kFails, kRejects, kHangs };

  Result<size_t> receive(std::span<const Event> events) {
    std::unique_lock lock(mutex_);
    calls_ += 1;
    changed_.notify_all();
    changed_.wait(lock, [this] { return answer_ != Answer::kHangs || is_cancelled_; });
    if (is_cancelled_) return fail(ExitCode::kUnavailable, "cancelled");
    if (answer_ == Answer::kFails) return fail(ExitCode::kUnavailable, "connection refused");
    if (answer_ == Answer::kRejects && events.front().step == 2) return fail(ExitCode::kDataErr, "rejected");
    steps_.push_back(events.front().step);  // one event per call
    if (const auto* text = std::get_if<Text>(&events.front().content)) text_ = text->text;
    changed_.notify_all();
    return size_t{1};
  }
  void set(Answer answer) {
    const std::lock_guard lock(mutex_);
    answer_ = answer;
    changed_.notify_all();
  }
  void cancel() {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    changed_.notify_all();
  }
  bool wait_for_steps(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return steps_.size() >= count; });
  }
  bool wait_for_calls(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return calls_ >= count; });
  }
  std::vector<int64_t> steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_ = Answer::kOk;
  bool is_cancelled_ = false;
  int calls_ = 0;
  std::vector<int64_t> steps_;
  std::string text_;  // the last one
};

class FakeSink : public Sink {
 public:
  explicit FakeSink(std::shared_ptr<FakeServer> server) : server_(std::move(server)) {}
  std::string_view name() const override { return "fake"; }
  bool is_remote() const override { return true; }
  Result<size_t> write(std::span<const Event> events) override { return server_->receive(events); }
  void cancel() override { server_->cancel(); }

 protected:
  std::shared_ptr<FakeServer> server_;
};

template <typename SinkType = FakeSink>
std::unique_ptr<Tracker> make_tracker(const fs::path& folder, const std::shared_ptr<FakeServer>& server,
                                      std::chrono::milliseconds claim_interval = kClaimInterval) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<SinkType>(server));
  return std::make_unique<Tracker>(
      TrackerOptions{.folder = folder, .first_retry = 5ms, .max_retry = 50ms, .claim_interval = claim_interval},
      std::move(sinks), Logger::silent());
}

TEST(Tracker, DeliversInOrder) {
  const TemporaryFolder folder;
  const auto server = std::make_shared<FakeServer>();
  const std::unique_ptr<Tracker> tracker = make_tracker(folder.path(), server);
  for (int64_t step = 1; step <= 5; ++step) tracker->add(scalar_at(step));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1, 2, 3, 4, 5));
}

TEST(Tracker, RepeatsUntilTheServerAnswers) {
  const TemporaryFolder folder;
  const auto server = std::make_shared<FakeServer>();
  server->set(FakeServer::Answer::kFails);
  const std::unique_ptr<Tracker> tracker = make_tracker(folder.path(), server);
  tracker->add(scalar_at(1));
  ASSERT_TRUE(server->wait_for_calls(3));
  EXPECT_THAT(server->steps(), IsEmpty());
  server->set(FakeServer::Answer::kOk);
  EXPECT_TRUE(server->wait_for_steps(1));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1));
}

TEST(Tracker, LeavesUndeliveredEventsToTheNextProcess) {
  const TemporaryFolder folder;
  const auto down = std::make_shared<FakeServer>();
  down->set(FakeServer::Answer::kFails);
  std::unique_ptr<Tracker> tracker = make_tracker(folder.path(), down);
  tracker->add(scalar_at(1));
  tracker->add(scalar_at(2));
  EXPECT_TRUE(tracker->persist(kPatience));
  tracker->finish(0ms);
  const auto up = std::make_shared<FakeServer>();
  tracker = make_tracker(folder.path(), up);
  tracker->add(scalar_at(3));
  tracker->finish(kPatience);
  EXPECT_THAT(up->steps(), ElementsAre(1, 2, 3));
}

TEST(Tracker, DropsARejectedEventOnly) {
  const TemporaryFolder folder;
  const auto server = std::make_shared<FakeServer>();
  server->set(FakeServer::Answer::kRejects);
  const std::unique_ptr<Tracker> tracker = make_tracker(folder.path(), server);
  for (int64_t step = 1; step <= 3; ++step) tracker->add(scalar_at(step));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1, 3));
}

TEST(Tracker, DoesNotWaitForAServerThatHangs) {
  const TemporaryFolder folder;
  const auto server = std::make_shared<FakeServer>();
  server->set(FakeServer::Answer::kHangs);
  const std::unique_ptr<Tracker> tracker = make_tracker(folder.path(), server);
  tracker->add(scalar_at(1));
  ASSERT_TRUE(server->wait_for_calls(1));
  for (int64_t step = 2; step <= 1000; ++step) tracker->add(scalar_at(step));
  EXPECT_TRUE(tracker->persist(kPatience));
  tracker->finish(50ms);  // cancels the request
  EXPECT_THAT(server->steps(), IsEmpty());
}

TEST(Tracker, WorksWithoutAFolder) {
  const auto server = std::make_shared<FakeServer>();
  const std::unique_ptr<Tracker> tracker = make_tracker("", server);
  tracker->add(scalar_at(1));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1));
}

TEST(Tracker, LaterProcessTakesOver) {
  const TemporaryFolder folder;
  const auto hangs = std::make_shared<FakeServer>();
  hangs->set(FakeServer::Answer::kHangs);
  const std::unique_ptr<Tracker> earlier = make_tracker(folder.path(), hangs);
  earlier->add(scalar_at(1));
  ASSERT_TRUE(hangs->wait_for_calls(1));
  EXPECT_TRUE(earlier->persist(kPatience));
  // Two processes at the same time: the earlier one cancels its request, and the later one delivers from the journal.
  const auto up = std::make_shared<FakeServer>();
  const std::unique_ptr<Tracker> later = make_tracker(folder.path(), up);
  later->add(scalar_at(2));
  ASSERT_TRUE(up->wait_for_steps(2));
  earlier->add(scalar_at(3));
  EXPECT_TRUE(earlier->persist(kPatience));  // discards the point
  later->finish(kPatience);
  earlier->finish(kPatience);
  EXPECT_THAT(up->steps(), ElementsAre(1, 2));
  EXPECT_THAT(hangs->steps(), IsEmpty());
}

// A sink that writes files, of which the number of writes is of interest.
class CountingSink final : public Sink {
 public:
  explicit CountingSink(std::shared_ptr<std::vector<size_t>> sizes) : sizes_(std::move(sizes)) {}
  std::string_view name() const override { return "counting"; }
  bool is_remote() const override { return false; }
  Result<size_t> write(std::span<const Event> events) override {
    sizes_->push_back(events.size());
    return events.size();
  }

 private:
  std::shared_ptr<std::vector<size_t>> sizes_;
};

TEST(Tracker, WritesThePointsOfAnIntervalTogether) {
  const auto sizes = std::make_shared<std::vector<size_t>>();
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<CountingSink>(sizes));
  Tracker tracker({.folder = "", .batch_interval = 1h}, std::move(sinks), Logger::silent());
  for (int64_t step = 1; step <= 3; ++step) tracker.add(scalar_at(step));
  EXPECT_TRUE(tracker.persist(kPatience));
  tracker.add(scalar_at(4));
  tracker.finish(kPatience);
  EXPECT_THAT(*sizes, ElementsAre(3, 1));
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t place = text.find(part); place != std::string::npos; place = text.find(part, place + 1)) ++out;
  return out;
}

// A sink that writes files, and fails as long as the disk is full.
class FailingSink final : public Sink {
 public:
  explicit FailingSink(std::shared_ptr<std::atomic<bool>> is_full) : is_full_(std::move(is_full)) {}
  std::string_view name() const override { return "failing"; }
  bool is_remote() const override { return false; }
  Result<size_t> write(std::span<const Event> events) override {
    if (*is_full_) return fail(ExitCode::kIoErr, "the disk is full");
    return events.size();
  }

 private:
  std::shared_ptr<std::atomic<bool>> is_full_;
};

TEST(Tracker, ReportsAFullDiskAndItsEndOnce) {
  testing::internal::CaptureStderr();
  {
    const auto is_full = std::make_shared<std::atomic<bool>>(true);
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<FailingSink>(is_full));
    Tracker tracker({.folder = ""}, std::move(sinks), Logger(LogFormat::kText, LogLevel::kInfo));
    for (const bool full : {true, true, false, false, true, false}) {
      *is_full = full;
      tracker.add(scalar_at(1));
      EXPECT_TRUE(tracker.persist(kPatience));
    }
    tracker.finish(kPatience);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(log, "tracking: points cannot be written"), 1) << log;
  EXPECT_EQ(count_of(log, "the disk is full"), 1) << log;
  EXPECT_EQ(count_of(log, "tracking: points are written again"), 1) << log;
}

TEST(Tracker, ReportsAFolderThatCannotBeClaimed) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "tracking";
  std::ofstream(path) << "a file";
  testing::internal::CaptureStderr();
  const auto sizes = std::make_shared<std::vector<size_t>>();
  {
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<CountingSink>(sizes));
    Tracker tracker({.folder = path}, std::move(sinks), Logger(LogFormat::kText, LogLevel::kInfo));
    tracker.add(scalar_at(1));
    tracker.finish(kPatience);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(log, "tracking: the folder cannot be claimed"), 1) << log;
  EXPECT_THAT(log, testing::HasSubstr(path.string()));
  EXPECT_THAT(*sizes, ElementsAre(1));
}

// As if an earlier process were on another machine, on a file system with locks that are valid on one machine only.
void hide_owner(const fs::path& folder) {
  nlohmann::json owner = nlohmann::json::parse(*read_file(folder / "owner.json"));
  owner["machine"] = "another";
  ASSERT_TRUE(write_file_atomically(folder / "owner.json", owner.dump()));
  fs::remove(folder / ".lock");
}

// finish() does not wait longer than a few seconds for a disk.
void wait_for_release(const fs::path& folder) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!fs::exists(folder / "released.json") && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
}

// One of two processes that share a server.
class SharingSink final : public FakeSink {
 public:
  using FakeSink::FakeSink;
  void cancel() override {}
};

TEST(Tracker, EarlierProcessWithoutSharedLocksStops) {
  const TemporaryFolder folder;
  const auto server = std::make_shared<FakeServer>();
  constexpr int64_t kLater = 10'000'000;
  const std::unique_ptr<Tracker> earlier = make_tracker<SharingSink>(folder.path(), server, kDefaultClaimInterval);
  earlier->add(scalar_at(1));
  ASSERT_TRUE(server->wait_for_steps(1));
  hide_owner(folder.path());
  const std::unique_ptr<Tracker> later = make_tracker<SharingSink>(folder.path(), server, kDefaultClaimInterval);
  later->add(scalar_at(kLater));
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (int64_t step = 2; server->steps().back() < kLater && std::chrono::steady_clock::now() < end; ++step) {
    earlier->add(scalar_at(step));
    EXPECT_TRUE(earlier->persist(kPatience));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(later->wait_for_delivery(kPatience));
  for (int64_t step = kLater; step < kLater + 10; ++step) earlier->add(scalar_at(step));
  earlier->finish(kPatience);
  later->finish(kPatience);
  const std::vector<int64_t> steps = server->steps();
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  // An event whose delivery the earlier process had not recorded yet is repeated.
  EXPECT_GE(std::set<int64_t>(steps.begin(), steps.end()).size() + 1, steps.size());
  EXPECT_EQ(steps.back(), kLater);
}

TEST(Tracker, WaitsUntilAProcessOfAnotherMachineHasReadTheClaim) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "owner.json") << R"({"process": "killed", "machine": "another"})";
  const auto server = std::make_shared<FakeServer>();
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Tracker> tracker = make_tracker(folder.path(), server);
  tracker->add(scalar_at(1));
  ASSERT_TRUE(server->wait_for_steps(1));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 4 * kClaimInterval);
}

TEST(Tracker, ReportsAShortRunAfterAProcessOfAnotherMachineWasKilled) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "owner.json") << R"({"process": "killed", "machine": "another"})";
  const auto down = std::make_shared<FakeServer>();
  down->set(FakeServer::Answer::kFails);
  const std::unique_ptr<Tracker> tracker = make_tracker(folder.path(), down);
  tracker->add(scalar_at(1));
  tracker->finish(0ms);
  wait_for_release(folder.path());
  const auto server = std::make_shared<FakeServer>();
  make_tracker(folder.path(), server)->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1));
}

TEST(Tracker, BeginsImmediatelyAfterAProcessOfAnotherMachineHasEnded) {
  const TemporaryFolder folder;
  const std::unique_ptr<Tracker> earlier = make_tracker(folder.path(), std::make_shared<FakeServer>());
  earlier->finish(kPatience);
  wait_for_release(folder.path());
  hide_owner(folder.path());
  std::vector<std::unique_ptr<Sink>> sinks;
  const auto server = std::make_shared<FakeServer>();
  sinks.push_back(std::make_unique<FakeSink>(server));
  Tracker tracker({.folder = folder.path(), .claim_interval = 1h}, std::move(sinks), Logger::silent());
  tracker.add(scalar_at(1));
  EXPECT_TRUE(server->wait_for_steps(1));
}

TEST(Tracker, CutsLongTextsAndDropsLargeImages) {
  const TemporaryFolder folder;
  const auto server = std::make_shared<FakeServer>();
  const std::unique_ptr<Tracker> tracker = make_tracker(folder.path(), server);
  Event text = scalar_at(1);
  std::string content = "a";
  while (content.size() <= kMaxTextBytes) content += "\u00e9";  // its last character would be cut in the middle
  text.content = Text{"samples", content};
  tracker->add(text);
  Event image = scalar_at(2);
  image.content = Image{"images", 1, 1, std::string(kMaxImageBytes + 1, 'x')};
  tracker->add(image);
  tracker->add(scalar_at(3));
  tracker->finish(kPatience);
  EXPECT_THAT(server->steps(), ElementsAre(1, 3));
  const std::string delivered = server->text();
  EXPECT_EQ(delivered.substr(0, kMaxTextBytes - 1), content.substr(0, kMaxTextBytes - 1));
  EXPECT_THAT(delivered.substr(kMaxTextBytes - 1),
              testing::HasSubstr(fmt::format("the first {} of {} bytes", kMaxTextBytes - 1, content.size())));
}

// ---- the folder's claim --------------------------------------------------------------------------------------------

TEST(FolderClaim, LaterProcessWaitsForTheLock) {
  const TemporaryFolder folder;
  FolderClaim earlier(folder.path() / "tracking", "uid", 1);
  ASSERT_TRUE(earlier.claim());
  EXPECT_TRUE(earlier.try_lock());
  EXPECT_FALSE(earlier.is_superseded());
  FolderClaim later(folder.path() / "tracking", "uid", 2);
  ASSERT_TRUE(later.claim());
  EXPECT_FALSE(later.try_lock());
  EXPECT_TRUE(earlier.is_superseded());
  earlier.release();
  EXPECT_TRUE(later.try_lock());
  EXPECT_FALSE(later.is_superseded());
}

TEST(FolderClaim, EarlierAttemptThatStartsLateIsRejected) {
  const TemporaryFolder folder;
  FolderClaim later(folder.path(), "uid", 2);
  ASSERT_TRUE(later.claim());
  FolderClaim earlier(folder.path(), "uid", 1);
  const Result<void> claimed = earlier.claim();
  ASSERT_FALSE(claimed);
  EXPECT_EQ(claimed.error().code, ExitCode::kTempFail);
  EXPECT_FALSE(later.is_superseded());
  EXPECT_TRUE(FolderClaim(folder.path(), "uid", 2).claim());  // a replaced process of the same attempt
  EXPECT_TRUE(later.is_superseded());
}

TEST(FolderClaim, TakesBackTheClaimOfAnEarlierAttempt) {
  const TemporaryFolder folder;
  FolderClaim earlier(folder.path(), "uid", 1);
  ASSERT_TRUE(earlier.claim());
  const std::string owner = *read_file(folder.path() / "owner.json");
  FolderClaim later(folder.path(), "uid", 2);
  ASSERT_TRUE(later.claim());
  std::ofstream(folder.path() / "owner.json") << owner;  // both claimed at the same time
  EXPECT_FALSE(later.is_superseded());
  EXPECT_TRUE(earlier.is_superseded());
  std::ofstream(folder.path() / "owner.json") << "damaged";
  EXPECT_FALSE(later.is_superseded());
  EXPECT_TRUE(FolderClaim(folder.path(), "uid of another job", 0).claim());
  EXPECT_TRUE(later.is_superseded());
}

TEST(FolderClaim, KnowsAWriterOfAnotherMachine) {
  const TemporaryFolder folder;
  FolderClaim first(folder.path(), "uid", 1);
  ASSERT_TRUE(first.claim());
  EXPECT_FALSE(first.may_have_hidden_writer());
  first.begin();
  FolderClaim neighbor(folder.path(), "uid", 2);
  ASSERT_TRUE(neighbor.claim());
  EXPECT_FALSE(neighbor.may_have_hidden_writer());  // the lock shows it
  std::ofstream(folder.path() / "owner.json") << R"({"process": "other", "machine": "another", "uid": "uid"})";
  FolderClaim later(folder.path(), "uid", 3);
  ASSERT_TRUE(later.claim());
  EXPECT_TRUE(later.may_have_hidden_writer());
  first.release();
  EXPECT_TRUE(later.may_have_hidden_writer());
  std::ofstream(folder.path() / "released.json") << R"({"process": "other"})";
  EXPECT_FALSE(later.may_have_hidden_writer());
}

TEST(FolderClaim, ReplacesPipesAndLinks) {
  for (const bool is_pipe : {true, false}) {
    const TemporaryFolder folder;
    std::ofstream(folder.path() / "target") << "content";
    for (const char* name : {"owner.json", "released.json", ".lock"}) {
      const fs::path path = folder.path() / name;
      if (is_pipe) {
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
      } else {
        fs::create_symlink("target", path);
      }
    }
    FolderClaim earlier(folder.path(), "uid", 1);
    ASSERT_TRUE(earlier.claim());
    EXPECT_TRUE(earlier.try_lock());
    EXPECT_FALSE(earlier.may_have_hidden_writer());
    earlier.begin();
    FolderClaim later(folder.path(), "uid", 2);
    ASSERT_TRUE(later.claim());
    EXPECT_TRUE(earlier.is_superseded());
    earlier.release();
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder.path() / "released.json")));
    EXPECT_EQ(*read_file(folder.path() / "target"), "content");
  }
}

TEST(FolderClaim, RespectsTheLockOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  FolderClaim earlier(folder.path(), "uid", 1);
  ASSERT_TRUE(earlier.claim());
  EXPECT_TRUE(earlier.try_lock());
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(seteuid(kNobody), 0);
  FolderClaim later(folder.path(), "uid", 2);
  const Result<void> claimed = later.claim();
  const bool is_locked = !later.try_lock();
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(claimed) << claimed.error().message;
  EXPECT_TRUE(is_locked);
  EXPECT_TRUE(earlier.is_superseded());
  earlier.release();
  EXPECT_TRUE(later.try_lock());
}

TEST(FolderClaim, NamesAFolderThatCannotBeClaimed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const mode_t mode : {mode_t{01777}, mode_t{0755}}) {  // others' files cannot be replaced; read-only
    const TemporaryFolder folder;
    ASSERT_TRUE(FolderClaim(folder.path(), "uid", 1).claim());
    ASSERT_EQ(chmod(folder.path().c_str(), mode), 0);
    constexpr uid_t kNobody = 65534;
    ASSERT_EQ(seteuid(kNobody), 0);
    FolderClaim later(folder.path(), "uid", 2);
    const Result<void> claimed = later.claim();
    const bool is_superseded = later.is_superseded();
    ASSERT_EQ(seteuid(0), 0);
    ASSERT_FALSE(claimed) << mode;
    EXPECT_NE(claimed.error().code, ExitCode::kTempFail);
    EXPECT_THAT(claimed.error().message, testing::HasSubstr(folder.path().string()));
    EXPECT_FALSE(is_superseded);  // reports without a claim
  }
}

TEST(FolderClaim, AcceptsAUidThatIsNotUtf8) {
  const TemporaryFolder folder;
  FolderClaim earlier(folder.path(), "caf\xe9", 1);
  ASSERT_TRUE(earlier.claim());
  EXPECT_FALSE(earlier.is_superseded());
  FolderClaim later(folder.path(), "caf\xe9", 2);
  ASSERT_TRUE(later.claim());
  EXPECT_EQ(FolderClaim(folder.path(), "caf\xe9", 1).claim().error().code, ExitCode::kTempFail);
}

// ---- TensorBoard's sink --------------------------------------------------------------------------------------------

class TensorboardSinkTest : public testing::Test {
 protected:
  // Writes the events of one attempt.
  void attempt(const std::vector<Event>& events) {
    const Result<size_t> written = make_sink()->write(events);
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(*written, events.size());
  }
  std::unique_ptr<Sink> make_sink(const Logger& logger = Logger::silent()) const {
    const SinkContext context{.folder = folder_.path() / "tracking", .logger = logger, .clock = clock_};
    return make_tensorboard_sink({}, context);
  }
  fs::path board() const { return folder_.path() / "tensorboard"; }
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
  TemporaryFolder folder_;
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

TEST_F(TensorboardSinkTest, ContinuesWhenTheFolderCanBeCreated) {
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
