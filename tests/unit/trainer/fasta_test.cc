// FASTA files with wrapped lines, CRLF and gzip, and messages that name file and line of invalid files.
#include "workloads/formats/fasta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/files.h"
#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Record {
  std::string header;
  std::string sequence;
  int64_t line;
  bool operator==(const Record&) const = default;
};

void PrintTo(const Record& record, std::ostream* out) {
  *out << record.line << ": >" << record.header << " " << record.sequence;
}

class FastaTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return path_;
  }

  std::filesystem::path write_gz(const std::string& content, const char* mode = "wb") {
    gzFile file = gzopen(path_.c_str(), mode);
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
    return path_;
  }

  Result<std::vector<Record>> read() {
    Result<FastaReader> reader = FastaReader::open(path_);
    if (!reader) return tl::make_unexpected(reader.error());
    std::vector<Record> records;
    for (;;) {
      Result<std::optional<FastaRecord>> next = reader->next();
      if (!next) return tl::make_unexpected(next.error());
      if (!next->has_value()) return records;
      const FastaRecord& record = **next;
      records.push_back({std::string(record.header), std::string(record.sequence), record.line});
    }
  }

  std::vector<Record> records() {
    Result<std::vector<Record>> read_ = read();
    EXPECT_TRUE(read_) << read_.error().message;
    return read_.value_or(std::vector<Record>{});
  }

  std::string error() {
    const Result<std::vector<Record>> wrong = read();
    EXPECT_FALSE(wrong);
    if (wrong) return "";
    EXPECT_EQ(wrong.error().code, ExitCode::kDataErr);
    return wrong.error().message;
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "some.fasta";
};

TEST_F(FastaTest, JoinsLinesAndIgnoresSpacesAndComments) {
  write("\n;from somewhere\n>UniRef50_A n=1 Tax=x\nMKV\nLAA\n\n>b\nac DE\t\n;comment\nF*-\n");
  EXPECT_THAT(records(), ElementsAre(Record{"UniRef50_A n=1 Tax=x", "MKVLAA", 3}, Record{"b", "acDEF*-", 7}));
}

TEST_F(FastaTest, AcceptsCrlf) {
  write(">a\r\nMKV\r\n\r\nLAA\r\n>b\r\nA");
  EXPECT_THAT(records(), ElementsAre(Record{"a", "MKVLAA", 1}, Record{"b", "A", 5}));
}

// NCBI's nr has one record for identical sequences.
TEST_F(FastaTest, AcceptsTitlesSeparatedByControlA) {
  write(">WP_1.1 a [E. coli]\x01GCX_1.1 b\nMK\n");
  EXPECT_THAT(records(), ElementsAre(Record{"WP_1.1 a [E. coli]\x01GCX_1.1 b", "MK", 1}));
}

TEST_F(FastaTest, AcceptsEmptyNamesAndSequences) {
  write(">a\n>\nMK\n>c");
  EXPECT_THAT(records(), ElementsAre(Record{"a", "", 1}, Record{"", "MK", 2}, Record{"c", "", 4}));
}

TEST_F(FastaTest, EmptyFileHasNoRecords) {
  write("");
  EXPECT_THAT(records(), IsEmpty());
  write("\n\n");
  EXPECT_THAT(records(), IsEmpty());
}

TEST_F(FastaTest, ReadsLinesLongerThanTheBuffer) {
  const std::string longest(3'000'001, 'W');
  write(">a\n" + longest + "\n>b\nM");
  EXPECT_THAT(records(), ElementsAre(Record{"a", longest, 1}, Record{"b", "M", 3}));
}

TEST_F(FastaTest, ReadsGzipWithSeveralMembers) {
  write_gz(">a\nMK");
  write_gz("V\n>b\nA\n", "ab");
  EXPECT_THAT(records(), ElementsAre(Record{"a", "MKV", 1}, Record{"b", "A", 3}));
}

TEST_F(FastaTest, RejectsInvalidFilesNamingTheLine) {
  const std::string place = path_.string();
  write("MKV\n>a\nM\n");
  EXPECT_EQ(error(), place + ":1: expected a header line with '>', found 'M'; this is not a FASTA file");
  write(">a\nMKV\nMK9V\n");
  EXPECT_EQ(error(), place + ":3: '9' at column 3 of a sequence, which may contain only letters, '*' and '-'");
  write(">a\nMK\xc3\xa4\n");
  EXPECT_EQ(error(), place + ":2: byte 0xc3 at column 3 of a sequence, which may contain only letters, '*' and '-'");
  write(std::string(">a\0b\nM\n", 7));
  EXPECT_EQ(error(), place + ":1: byte 0x00 in a header; this is not a FASTA file");
  write(std::string(1 << 16, '\0'));
  EXPECT_EQ(error(), place + ":1: expected a header line with '>', found byte 0x00; this is not a FASTA file");
}

TEST_F(FastaTest, RejectsRecordsThatAreTooLong) {
  const std::string half(FastaReader::kMaxLength / 2 + 1, 'A');
  write(">a\n" + half + "\n" + half + "\n");
  EXPECT_THAT(error(), HasSubstr(":3: a sequence has more than 67108864 characters"));
  write(">a\n" + half + half + half + "\n");
  EXPECT_THAT(error(), HasSubstr(":2: a line has more than 67108864 characters"));
  write(">a\nA\n" + std::string(FastaReader::kMaxLength / 2, '\n') + ";" + half + "\n");
  EXPECT_THAT(error(), HasSubstr(":33554435: more than 67108864 characters of spaces, empty lines and comments"));
  std::string blanks = ">a\nA\n";
  for (size_t i = 0; i < FastaReader::kMaxLength / 1024 + 1; ++i) blanks += std::string(1023, ' ') + "\n";
  write(blanks);
  EXPECT_THAT(error(), HasSubstr("more than 67108864 characters of spaces, empty lines and comments"));
}

TEST_F(FastaTest, TruncatedGzipNamesTheLastLine) {
  std::string content;
  uint32_t state = 1;  // letters that do not compress well
  for (int i = 0; i < 4000; ++i) {
    content += ">r\n";
    for (int j = 0; j < 60; ++j)
      content += static_cast<char>('A' + ((state = state * 1664525 + 1013904223) >> 27) % 20);
    content += '\n';
  }
  write_gz(content);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  EXPECT_THAT(error(), testing::MatchesRegex(path_.string() + ": the gzip stream is truncated; fetch the file again "
                                                              "\\(after line [0-9]+\\)"));
}

// bgzip writes members of 64 KiB. zlib's gzread() ignores what follows a member without an error.
TEST_F(FastaTest, ReportsDamageBetweenMembers) {
  write_gz(">a\nMK\n");
  const std::string member = *read_file(path_);
  write(member + member);
  EXPECT_EQ(read()->size(), 2u);
  for (const size_t byte : {size_t{0}, size_t{1}, size_t{2}}) {
    std::string damaged = member + member + member;
    damaged[member.size() + byte] = static_cast<char>(damaged[member.size() + byte] ^ 1);
    write(damaged);
    EXPECT_THAT(error(), HasSubstr("the gzip stream is damaged")) << byte;
  }
}

TEST_F(FastaTest, ReportsMissingFile) {
  const Result<std::vector<Record>> missing = read();
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ExitCode::kNoInput);
  EXPECT_THAT(missing.error().message, HasSubstr("some.fasta: cannot be opened: No such file"));
}

}  // namespace
}  // namespace oarlock
