// Events on the disk that a server has not received yet, and their encoding.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "common/files.h"
#include "tests/support/full_disk.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tracking_events.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/journal.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::FullDisk;
using test::scalar_at;
using test::started;
using test::steps_of;
using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::IsEmpty;

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
  EXPECT_EQ(decode_event(std::string(200'000, '\x81')), std::nullopt) << "lists in lists";
  EXPECT_EQ(decode_event(std::string("\x9a\x00\x30\x00\x00", 5) + std::string(0x300000, '\0')), std::nullopt)
      << "many numbers";
  for (const char part : {'\x5f', '\x7f'})  // the library reads parts of a string recursively
    EXPECT_EQ(decode_event("\xa1\x61k" + std::string(200'000, part)), std::nullopt) << "strings of unknown length";
  EXPECT_EQ(decode_event("\xa1\x61k" + std::string(200'000, '\xc1')), std::nullopt) << "tags";
  const std::string encoded = encode_event(event);
  for (size_t size = 0; size < encoded.size(); ++size)
    EXPECT_EQ(decode_event(std::string_view(encoded).substr(0, size)), std::nullopt) << size;
  EXPECT_EQ(decode_event(encoded + '\0'), std::nullopt);
  const std::string far = "\xa3\x64time\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x64step\x07\x64text\xa0";
  ASSERT_TRUE(decode_event(far));  // microseconds that SystemTime, in nanoseconds, does not represent
  EXPECT_GT(decode_event(far)->time, SystemTime());
}

std::unique_ptr<Journal> open_journal(const fs::path& directory, uint64_t max_bytes = 1 << 30) {
  Result<std::unique_ptr<Journal>> journal = Journal::open(directory, "sink", max_bytes);
  EXPECT_TRUE(journal) << journal.error().message;
  return std::move(*journal);
}

TEST(Journal, KeepsUndeliveredEventsForTheNextProcess) {
  for (const bool is_on_disk : {true, false}) {
    const TemporaryDirectory directory;
    const fs::path path = is_on_disk ? directory.path() / "tracking" : fs::path();
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
  const TemporaryDirectory directory;
  ASSERT_TRUE(open_journal(directory.path())->append({encode_event(scalar_at(1)), encode_event(scalar_at(2))}));
  const fs::path file = directory.path() / "sink.journal";
  const std::string whole = *read_file(file);
  for (size_t lost = 1; lost < 40; ++lost) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << whole.substr(0, whole.size() - lost);
    const std::unique_ptr<Journal> journal = open_journal(directory.path());
    ASSERT_TRUE(journal->append({encode_event(scalar_at(3))}));
    const Result<Journal::Batch> batch = journal->read(10, 1 << 20);
    ASSERT_TRUE(batch);
    EXPECT_THAT(steps_of(batch->events), ElementsAre(1, 3)) << lost;
  }
}

// A file in which each head claims the whole rest: the time would grow with the square of its size.
TEST(Journal, DamagedEventsThatOverlapAreReadForALimitedTime) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(open_journal(directory.path())->append({encode_event(scalar_at(1))}));
  const fs::path file = directory.path() / "sink.journal";
  const std::string whole = *read_file(file);
  const auto checksum = [](const std::string& text) {
    return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
  };
  const auto number = [](uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  constexpr uint32_t kLength = 20 << 20;
  std::string head = whole.substr(20, 4) + number(kLength) + number(0);
  head += number(checksum(head));
  std::string heads;
  for (int i = 0; i < 40'000; ++i) heads += head;
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      << whole << heads << std::string(kLength, '\0') << whole.substr(20);
  const std::unique_ptr<Journal> journal = open_journal(directory.path());
  EXPECT_THAT(steps_of(journal->read(10, 1 << 20)->events), ElementsAre(1)) << "what follows is taken for damaged";
  ASSERT_TRUE(journal->append({encode_event(scalar_at(2))}));
  EXPECT_THAT(steps_of(journal->read(10, 1 << 20)->events), ElementsAre(1, 2));
}

// Positions of its events would overflow.
TEST(Journal, PositionThatIsTooLargeIsDamage) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(open_journal(directory.path())->append({encode_event(scalar_at(1)), encode_event(scalar_at(2))}));
  const fs::path file = directory.path() / "sink.journal";
  std::string bytes = *read_file(file);
  for (size_t i = 8; i < 16; ++i) bytes[i] = '\xff';
  const auto checksum = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), 16));
  bytes.replace(16, sizeof checksum, reinterpret_cast<const char*>(&checksum), sizeof checksum);
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  const std::unique_ptr<Journal> journal = open_journal(directory.path());
  const Result<Journal::Batch> batch = journal->read(10, 1 << 20);
  ASSERT_TRUE(batch);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(1, 2));
  ASSERT_TRUE(journal->discard(batch->ends.back()));
  EXPECT_TRUE(journal->is_empty());
}

std::vector<int64_t> undelivered_steps(const fs::path& directory) {
  const std::unique_ptr<Journal> journal = open_journal(directory);
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

JournalFiles write_journal(const fs::path& directory) {
  JournalFiles out;
  {
    const std::unique_ptr<Journal> journal = open_journal(directory);
    for (int64_t step = 1; step <= 5; ++step) {
      EXPECT_TRUE(journal->append({encode_event(scalar_at(step))}));
      out.ends.push_back(fs::file_size(directory / "sink.journal"));
    }
    const Result<Journal::Batch> batch = journal->read(1, 1);
    EXPECT_TRUE(batch && journal->discard(batch->ends.at(0)));
  }
  out.journal = *read_file(directory / "sink.journal");
  out.delivered = *read_file(directory / "sink.delivered");
  return out;
}

void restore(const fs::path& directory, const std::string& journal, const std::string& delivered) {
  std::ofstream(directory / "sink.journal", std::ios::binary | std::ios::trunc) << journal;
  std::ofstream(directory / "sink.delivered", std::ios::binary | std::ios::trunc) << delivered;
}

TEST(Journal, ADamagedByteCostsItsEventOnly) {
  const TemporaryDirectory directory;
  const JournalFiles files = write_journal(directory.path());
  const size_t first_begin = files.ends[0] - (files.ends[1] - files.ends[0]);  // all events have the same size
  for (size_t i = 0; i < files.journal.size(); ++i) {
    std::string damaged = files.journal;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 == 0 ? 0x01 : 0xff));
    restore(directory.path(), damaged, files.delivered);
    std::vector<int64_t> expected = {2, 3, 4, 5};
    if (i < first_begin) expected.insert(expected.begin(), 1);  // without a valid head, everything is delivered again
    for (size_t event = 1; event < 5; ++event) {
      if (i >= files.ends[event - 1] && i < files.ends[event]) std::erase(expected, static_cast<int64_t>(event) + 1);
    }
    ASSERT_EQ(undelivered_steps(directory.path()), expected) << "byte " << i;
    ASSERT_EQ(undelivered_steps(directory.path()), expected) << "byte " << i << ", opened again";
  }
}

TEST(Journal, DamageWhileItIsOpenCostsItsEventOnly) {
  const TemporaryDirectory directory;
  const JournalFiles files = write_journal(directory.path());
  const std::unique_ptr<Journal> journal = open_journal(directory.path());
  std::fstream file(directory.path() / "sink.journal", std::ios::binary | std::ios::in | std::ios::out);
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
  const TemporaryDirectory directory;
  const JournalFiles files = write_journal(directory.path());
  for (size_t size = 0; size < files.journal.size(); ++size) {
    for (const bool has_zeros : {false, true}) {  // some file systems extend a file before they write its data
      std::string torn = files.journal.substr(0, size);
      if (has_zeros) torn.resize(files.journal.size());
      restore(directory.path(), torn, files.delivered);
      const std::unique_ptr<Journal> journal = open_journal(directory.path());
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
  const TemporaryDirectory directory;
  const JournalFiles files = write_journal(directory.path());
  for (size_t i = 0; i < files.delivered.size(); ++i) {
    std::string damaged = files.delivered;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    restore(directory.path(), files.journal, damaged);
    ASSERT_THAT(undelivered_steps(directory.path()), ElementsAre(1, 2, 3, 4, 5)) << i;
    restore(directory.path(), files.journal, files.delivered.substr(0, i));
    ASSERT_THAT(undelivered_steps(directory.path()), ElementsAre(1, 2, 3, 4, 5)) << i;
  }
}

TEST(Journal, RemovesDeliveredEventsFromTheFile) {
  const TemporaryDirectory directory;
  Event large = scalar_at(1);
  large.content = Text{"text", std::string(1 << 18, 'x')};
  std::unique_ptr<Journal> journal = open_journal(directory.path());
  for (int64_t i = 0; i < 40; ++i) {
    large.step = i;
    ASSERT_TRUE(journal->append({encode_event(large)}));
    const Result<Journal::Batch> batch = journal->read(1, 1);
    ASSERT_TRUE(batch);
    EXPECT_THAT(steps_of(batch->events), ElementsAre(i));
    ASSERT_TRUE(journal->discard(batch->ends.back()));
    if (i % 7 == 0) journal = open_journal(directory.path());
  }
  EXPECT_LT(fs::file_size(directory.path() / "sink.journal"), 3U << 20);
}

TEST(Journal, HasALimit) {
  const TemporaryDirectory directory;
  const std::unique_ptr<Journal> journal = open_journal(directory.path(), 200);
  const std::string event = encode_event(scalar_at(1));
  ASSERT_TRUE(journal->append({event}));
  const Result<void> full = journal->append({event, event, event, event});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ExitCode::kUnavailable);
  EXPECT_TRUE(journal->append({event, event, event, event}, /*beyond_limit=*/true));
}

TEST(Journal, KeepsAFileOfAnotherFormatAside) {
  const TemporaryDirectory directory;
  const std::string other = "oarlock\1" + std::string(100, 'x');
  for (const char* kept : {"sink.journal.unreadable", "sink.journal.unreadable.1"}) {
    std::ofstream(directory.path() / "sink.journal", std::ios::binary | std::ios::trunc) << other;
    const std::unique_ptr<Journal> journal = open_journal(directory.path());
    EXPECT_THAT(journal->warning(), testing::HasSubstr(kept));
    EXPECT_EQ(*read_file(directory.path() / kept), other);
    EXPECT_TRUE(journal->is_empty());
    ASSERT_TRUE(journal->append({encode_event(scalar_at(1))}));
  }
  EXPECT_THAT(undelivered_steps(directory.path()), ElementsAre(1));
  EXPECT_THAT(open_journal(directory.path())->warning(), IsEmpty());
}

TEST(Journal, ReplacesPipesAndLinks) {
  for (const char* name : {"sink.journal", "sink.journal.new", "sink.delivered", "sink.delivered.new"}) {
    for (const bool is_pipe : {true, false}) {
      const TemporaryDirectory directory;
      const fs::path path = directory.path() / name;
      std::ofstream(directory.path() / "target") << "content";
      if (is_pipe) {
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
      } else {
        fs::create_symlink("target", path);
      }
      std::unique_ptr<Journal> journal = open_journal(directory.path());
      ASSERT_TRUE(journal->append({encode_event(scalar_at(1)), encode_event(scalar_at(2))}));
      if (std::strcmp(name, "sink.journal") == 0) {
        EXPECT_THAT(journal->warning(), testing::HasSubstr(path.string() + ": is not a regular file"));
      } else {
        EXPECT_THAT(journal->warning(), IsEmpty());
      }
      journal.reset();
      EXPECT_THAT(undelivered_steps(directory.path()), ElementsAre(1, 2)) << name;
      EXPECT_EQ(*read_file(directory.path() / "target"), "content") << name;
    }
  }
}

TEST(Journal, ReportsWhatIsDamaged) {
  const TemporaryDirectory directory;
  const JournalFiles files = write_journal(directory.path());
  std::string damaged = files.journal;
  damaged[files.ends[2] - 1] ^= 1;
  restore(directory.path(), damaged, files.delivered);
  const std::unique_ptr<Journal> journal = open_journal(directory.path());
  EXPECT_THAT(journal->warning(), testing::HasSubstr(fmt::format("{} bytes", files.ends[2] - files.ends[1])));
  const Result<Journal::Batch> batch = journal->read(100, 1 << 20);
  ASSERT_TRUE(batch);
  EXPECT_TRUE(batch->is_incomplete);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(2, 4, 5));
}

TEST(Journal, ATornEndIsNotDamage) {
  const TemporaryDirectory directory;
  const JournalFiles files = write_journal(directory.path());
  restore(directory.path(), files.journal.substr(0, files.journal.size() - 3), files.delivered);
  EXPECT_THAT(open_journal(directory.path())->warning(), IsEmpty());
}

// Appends texts of one MiB, with the steps 1 to `count`, and adds a hard link to the file.
void write_texts(const fs::path& directory, int64_t count) {
  const std::unique_ptr<Journal> journal = open_journal(directory);
  Event event = scalar_at(1);
  event.content = Text{"text", std::string(1 << 20, 'x')};
  for (event.step = 1; event.step <= count; ++event.step) ASSERT_TRUE(journal->append({encode_event(event)}));
  fs::create_hard_link(directory / "sink.journal", directory / "link");
}

TEST(Journal, ContinuesALargeFileInPlace) {
  const TemporaryDirectory directory;
  ASSERT_NO_FATAL_FAILURE(write_texts(directory.path(), 17));
  std::unique_ptr<Journal> journal = open_journal(directory.path());
  EXPECT_TRUE(fs::equivalent(directory.path() / "link", directory.path() / "sink.journal"));
  Result<Journal::Batch> batch = journal->read(5, 100 << 20);
  ASSERT_TRUE(batch);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(1, 2, 3, 4, 5));
  ASSERT_TRUE(journal->discard(batch->ends.back()));
  ASSERT_TRUE(journal->append({encode_event(scalar_at(18))}));
  journal = open_journal(directory.path());  // what is left is small
  EXPECT_FALSE(fs::equivalent(directory.path() / "link", directory.path() / "sink.journal"));
  batch = journal->read(100, 100 << 20);
  ASSERT_TRUE(batch);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18));
}

TEST(Journal, TakesNoSpaceThatIsMissing) {
  const TemporaryDirectory directory;
  ASSERT_NO_FATAL_FAILURE(write_texts(directory.path(), 3));
  Result<std::unique_ptr<Journal>> journal = [&] {
    const FullDisk full(1 << 20);
    return Journal::open(directory.path(), "sink", 1 << 30);
  }();
  ASSERT_TRUE(journal) << journal.error().message;
  EXPECT_FALSE(fs::exists(directory.path() / "sink.journal.new"));
  ASSERT_TRUE((*journal)->append({encode_event(scalar_at(4))}));
  const Result<Journal::Batch> batch = (*journal)->read(100, 100 << 20);
  ASSERT_TRUE(batch);
  EXPECT_THAT(steps_of(batch->events), ElementsAre(1, 2, 3, 4));
}

TEST(Journal, DeliversOnAFullDisk) {
  const TemporaryDirectory directory;
  ASSERT_NO_FATAL_FAILURE(write_texts(directory.path(), 5));
  const std::unique_ptr<Journal> journal = open_journal(directory.path());
  const FullDisk full(1 << 20);
  for (int64_t step = 1; step <= 5; ++step) {
    const Result<Journal::Batch> batch = journal->read(1, 1);
    ASSERT_TRUE(batch);
    ASSERT_THAT(steps_of(batch->events), ElementsAre(step));
    const Result<void> discarded = journal->discard(batch->ends.back());  // a shorter copy of the file has no space
    EXPECT_TRUE(discarded) << discarded.error().message;
    EXPECT_FALSE(fs::exists(directory.path() / "sink.journal.new"));
  }
  EXPECT_LT(fs::file_size(directory.path() / "sink.journal"), 1000);  // the space is free for others
}

TEST(Journal, UsesTheSpaceOfDeliveredEventsOnAFullDisk) {
  const TemporaryDirectory directory;
  const std::unique_ptr<Journal> journal = open_journal(directory.path());
  ASSERT_TRUE(journal->append({encode_event(scalar_at(1)), encode_event(scalar_at(2))}));
  const uintmax_t size = fs::file_size(directory.path() / "sink.journal");
  const FullDisk full(size + 10);
  const std::string next = encode_event(scalar_at(3));
  EXPECT_FALSE(journal->append({next}));
  EXPECT_EQ(fs::file_size(directory.path() / "sink.journal"), size);  // nothing is left of it
  const Result<Journal::Batch> batch = journal->read(100, 1 << 20);
  ASSERT_TRUE(batch);
  ASSERT_TRUE(journal->discard(batch->ends.at(0)));
  EXPECT_FALSE(journal->append({next}));  // the second event is not delivered
  ASSERT_TRUE(journal->discard(batch->ends.at(1)));
  EXPECT_TRUE(journal->append({next}));
  EXPECT_THAT(undelivered_steps(directory.path()), ElementsAre(3));
}

constexpr size_t kJournalHeadSize = 20;

// A process may be killed after each system call.
TEST(Journal, SurvivesAKillWhileItsSpaceIsUsedAgain) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "sink.journal";
  {
    const std::unique_ptr<Journal> journal = open_journal(directory.path());
    ASSERT_TRUE(journal->append({encode_event(scalar_at(1)), encode_event(scalar_at(2))}));
    const Result<Journal::Batch> batch = journal->read(100, 1 << 20);
    ASSERT_TRUE(batch);
    ASSERT_TRUE(journal->discard(batch->ends.back()));
    const std::string before = *read_file(path);
    const FullDisk full(fs::file_size(path) + 10);
    ASSERT_TRUE(journal->append({encode_event(scalar_at(3))}));
    const std::string after = *read_file(path);
    const std::string delivered = *read_file(directory.path() / "sink.delivered");
    const TemporaryDirectory killed;
    for (const std::string& content :
         {before.substr(0, kJournalHeadSize), after.substr(0, kJournalHeadSize), after.substr(0, after.size() - 3)}) {
      restore(killed.path(), content, delivered);
      EXPECT_THAT(undelivered_steps(killed.path()), IsEmpty());
    }
  }
  EXPECT_THAT(undelivered_steps(directory.path()), ElementsAre(3));
}

TEST(Journal, ReportsAFileThatWasEmptied) {
  const TemporaryDirectory directory;
  const JournalFiles files = write_journal(directory.path());
  restore(directory.path(), "", files.delivered);
  EXPECT_THAT(open_journal(directory.path())->warning(), testing::HasSubstr("sink.journal: was truncated"));
  EXPECT_THAT(open_journal(directory.path())->warning(), IsEmpty());
}

TEST(Journal, AnEarlierProcessCannotChangeIt) {
  const TemporaryDirectory directory;
  const std::unique_ptr<Journal> earlier = open_journal(directory.path());
  ASSERT_TRUE(earlier->append({encode_event(scalar_at(1)), encode_event(scalar_at(2))}));
  const Result<Journal::Batch> batch = earlier->read(1, 1);
  ASSERT_TRUE(batch);
  const std::unique_ptr<Journal> later = open_journal(directory.path());
  static_cast<void>(earlier->append({encode_event(scalar_at(3))}));
  static_cast<void>(earlier->discard(batch->ends.at(0)));
  ASSERT_TRUE(later->append({encode_event(scalar_at(4))}));
  EXPECT_THAT(undelivered_steps(directory.path()), ElementsAre(1, 2, 4));
}

}  // namespace
}  // namespace oarlock
