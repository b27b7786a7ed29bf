// From FASTA to the input tokens of a model: vocabulary, filter, held-out part, cache; and real proteins.
#include "workloads/protein_diffusion/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "workloads/protein_diffusion/fasta_conversion.h"

namespace oarlock::protein_diffusion {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr char kRealProteins[] = "/usr/share/doc/mmseqs2/example-data/DB.fasta.gz";

std::vector<int64_t> tokens_of(const Sequences& sequences, int64_t i) {
  std::vector<int64_t> tokens(static_cast<size_t>(sequences.length(i)));
  sequences.tokens(i, tokens);
  return tokens;
}

std::vector<std::string> all_letters(const Sequences& sequences) {
  std::vector<std::string> all;
  for (int64_t i = 0; i < sequences.size(); ++i) all.push_back(decode(tokens_of(sequences, i)));
  return all;
}

// A protein of these residues: a number in base 20.
std::string protein(int64_t number, int length) {
  std::string letters;
  for (int i = 0; i < length; ++i, number = number / 20 + 7919) letters += kResidues[static_cast<size_t>(number % 20)];
  return letters;
}

class ProteinDataTest : public testing::Test {
 protected:
  ProteinDataTest() {
    config_.path = (directory_.path() / "some.fasta").string();
    config_.filter.min_length = 1;
    config_.held_out.fraction = 0;
  }

  void write(const std::string& content, const std::string& path = "") {
    std::ofstream(path.empty() ? config_.path : path, std::ios::binary) << content;
  }

  void write_proteins(int64_t count, int length = 30) {
    std::ofstream file(config_.path, std::ios::binary);
    for (int64_t i = 0; i < count; ++i) file << ">p" << i << "\n" << protein(i, length) << "\n";
  }

  std::string failure() {
    const Result<void> failed = prepare_proteins(config_, Logger::silent());
    EXPECT_FALSE(failed);
    return failed ? "" : failed.error().message;
  }

  ProteinSplits open() {
    const Result<void> prepared = prepare_proteins(config_, Logger::silent());
    EXPECT_TRUE(prepared) << prepared.error().message;
    Result<ProteinSplits> opened = open_proteins(config_);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(*opened);
  }

  // Without a held-out part, straight from the converter.
  std::vector<std::string> train_letters() {
    const fs::path out = directory_.path() / "out";
    fs::create_directory(out);
    Result<ConversionCounts> counts =
        convert_fasta(config_.path, config_.filter, config_.held_out, out, Logger::silent());
    EXPECT_TRUE(counts) << counts.error().message;
    counts_ = counts.value_or(ConversionCounts{});
    Result<PackedRecords> packed = PackedRecords::open(out / "train");
    EXPECT_TRUE(packed) << packed.error().message;
    return all_letters(Sequences(std::move(*packed)));
  }

  std::vector<std::string> conversions() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(config_.path + ".oarlock")) {
      if (entry.path().filename() != "lock") names.push_back(entry.path().filename());
    }
    return names;
  }

  test::TemporaryDirectory directory_;
  ProteinDataConfig config_;
  ConversionCounts counts_;
};

TEST(Residues, HaveTheOriginalsTokens) {
  EXPECT_EQ(encode('A'), 5);
  EXPECT_EQ(encode('C'), 6);
  EXPECT_EQ(encode('Y'), 24);
  EXPECT_EQ(encode('w'), encode('W'));
  std::set<int64_t> tokens;
  for (const char letter : kResidues) tokens.insert(encode(letter).value());
  EXPECT_EQ(tokens.size(), 20U);
  for (const char letter : std::string("XBZUOJ*-xbzuoj5 ")) EXPECT_FALSE(encode(letter)) << letter;
  EXPECT_EQ(decode(std::vector<int64_t>{kStartToken, 5, kUnknownToken, 24, kMaskToken, kPadToken, 30, 36}), "AXY");
}

TEST_F(ProteinDataTest, TokensAreCutOrPaddedToTheModelsLength) {
  write(">a\nACDEF\n>b\nYYY\n");
  config_.held_out.fraction = 0;
  config_.eval_path = config_.path;
  const ProteinSplits splits = open();
  std::vector<int64_t> out(4, -1);
  splits.train.tokens(0, out);
  EXPECT_THAT(out, ElementsAre(5, 6, 7, 8));
  splits.train.tokens(1, out);
  EXPECT_THAT(out, ElementsAre(24, 24, 24, kPadToken));
  EXPECT_EQ(splits.train.length(0), 5);
  EXPECT_EQ(splits.eval.size(), 2);
}

TEST_F(ProteinDataTest, UnknownResiduesAreDroppedAsTheOriginalDoesOrBecomeUnk) {
  write(">a\nacXdefghikBlmnpqrstvwyac\n");
  config_.filter.max_unknown = 0.1;
  EXPECT_THAT(train_letters(), ElementsAre("ACDEFGHIKLMNPQRSTVWYAC"));
  EXPECT_EQ(counts_.unknown_residues, 2);
  config_.filter.unknown_residues = UnknownResidues::kToken;
  EXPECT_THAT(train_letters(), ElementsAre("ACXDEFGHIKXLMNPQRSTVWYAC"));
}

TEST_F(ProteinDataTest, SkipsAndCountsRejectedRecords) {
  write(">empty\n\n>short\nAC\n>long\n" + std::string(11, 'A') +
        "\n>unknown\nACDEXX\n>none\nXXXX\n>good\nACDEFGHIKL\n");
  config_.filter = {.min_length = 3, .max_length = 10, .max_sequences = 0, .unknown_residues = {}, .max_unknown = 0.2};
  EXPECT_THAT(train_letters(), ElementsAre("ACDEFGHIKL"));
  EXPECT_EQ(counts_.records, 6);
  EXPECT_EQ(counts_.empty, 1);
  EXPECT_EQ(counts_.too_short, 1);
  EXPECT_EQ(counts_.too_long, 1);
  EXPECT_EQ(counts_.too_many_unknown, 2);
  EXPECT_EQ(counts_.train, 1);
}

TEST_F(ProteinDataTest, ARecordOfUnknownResiduesOnlyIsNeverTakenAsEmpty) {
  write(">a\nXX\n>b\nAC\n");
  config_.filter.max_unknown = 1;
  EXPECT_THAT(train_letters(), ElementsAre("AC"));
}

TEST_F(ProteinDataTest, MaxSequencesStopsReading) {
  write(">a\nAC\n>b\nX\n>c\nAD\n>d\nAE\n>broken\n12345\n");
  config_.filter.max_sequences = 2;
  EXPECT_THAT(train_letters(), ElementsAre("AC", "AD"));
}

TEST_F(ProteinDataTest, TheHeldOutPartIsDecidedByTheSequence) {
  write_proteins(4000);
  config_.held_out.fraction = 0.1;
  const ProteinSplits first = open();
  const std::vector<std::string> train = all_letters(first.train);
  const std::vector<std::string> eval = all_letters(first.eval);
  EXPECT_EQ(train.size() + eval.size(), 4000U);
  EXPECT_NEAR(static_cast<double>(eval.size()), 400, 80);  // four standard deviations
  std::set<std::string> both(train.begin(), train.end());
  for (const std::string& letters : eval) EXPECT_EQ(both.count(letters), 0U);

  // The same sequences in another order, one of them twice, and in lower case: the same are held out.
  std::string reversed;
  for (int64_t i = 4000; i-- > 0;) reversed += ">again\n" + protein(i, 30) + "\n";
  std::string doubled = eval.front();
  for (char& letter : doubled) letter = static_cast<char>(std::tolower(letter));
  write(reversed + ">double\n" + doubled + "\n");
  std::vector<std::string> again = all_letters(open().eval);
  EXPECT_EQ(std::count(again.begin(), again.end(), eval.front()), 2);
  EXPECT_EQ(std::set<std::string>(again.begin(), again.end()), std::set<std::string>(eval.begin(), eval.end()));

  config_.held_out.seed = 43;
  EXPECT_NE(all_letters(open().eval), again);
  config_.eval_sequences = 7;
  EXPECT_EQ(open().eval.size(), 7);
}

TEST_F(ProteinDataTest, ASideWithoutSequencesIsAnError) {
  write(">a\nACDEF\n");
  ASSERT_TRUE(prepare_proteins(config_, Logger::silent()));
  const Result<ProteinSplits> opened = open_proteins(config_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ExitCode::kDataErr);
  EXPECT_THAT(opened.error().message, HasSubstr("no sequence is held out; raise data.eval_fraction (0)"));
  config_.filter.min_length = 6;
  EXPECT_THAT(failure(), HasSubstr("no sequence passes: of 1 records 0 are empty, 1 shorter than 6 (data.min_length)"));
  EXPECT_EQ(conversions().size(), 1U);  // that of before; a failure leaves nothing
}

TEST_F(ProteinDataTest, ConvertsOncePerFileAndFilter) {
  write_proteins(10);
  config_.eval_path = config_.path;
  open();
  const std::vector<std::string> first = conversions();
  ASSERT_EQ(first.size(), 1U);  // both sides have the same filter here
  const fs::path index = fs::path(config_.path + ".oarlock") / first.front() / "train.index";
  const auto written = fs::last_write_time(index);
  open();
  EXPECT_EQ(fs::last_write_time(index), written);
  config_.filter.max_length = 31;
  open();
  EXPECT_EQ(conversions().size(), 2U);
  write_proteins(11);  // the file changed
  EXPECT_EQ(open().train.size(), 11);
  EXPECT_EQ(conversions().size(), 1U) << "those of the earlier content are removed";
}

TEST_F(ProteinDataTest, ADirectoryThatCannotBeWrittenToIsReadWhereItWasConverted) {
  write_proteins(10);
  config_.eval_path = config_.path;
  config_.cache = "/proc/oarlock";
  EXPECT_THAT(failure(), testing::AllOf(StartsWith("/proc/oarlock/some.fasta.oarlock: the directory cannot be created"),
                                        HasSubstr("set data.cache to a writable directory")));
  config_.cache = (directory_.path() / "cache").string();
  EXPECT_EQ(open().train.size(), 10);
  EXPECT_TRUE(fs::exists(directory_.path() / "cache" / "some.fasta.oarlock"));
  EXPECT_FALSE(fs::exists(config_.path + ".oarlock"));
}

TEST_F(ProteinDataTest, ReplacesTheLeftoversOfAKilledProcess) {
  write_proteins(10);
  config_.eval_path = config_.path;
  const fs::path part = config_.path + ".oarlock/sequences-0123456789abcdef.part";
  fs::create_directories(part);
  std::ofstream(part / "train.bytes") << "half";
  std::ofstream(part / "other") << "what is this";
  EXPECT_EQ(open().train.size(), 10);
  EXPECT_FALSE(fs::exists(part));
}

// As in images that are built reproducibly.
TEST_F(ProteinDataTest, AnotherFileOfEqualSizeAndTimeIsConverted) {
  write_proteins(10);
  config_.eval_path = config_.path;
  const auto time = fs::last_write_time(config_.path);
  const std::string first = all_letters(open().train).front();
  write(">p0\n" + std::string(30, 'W') + "\n");
  for (int i = 1; i < 10; ++i) {
    std::ofstream(config_.path, std::ios::binary | std::ios::app) << ">p" << i << "\n" << std::string(30, 'W') << "\n";
  }
  fs::last_write_time(config_.path, time);
  EXPECT_EQ(all_letters(open().train).front(), std::string(30, 'W'));
}

TEST_F(ProteinDataTest, ProcessesThatConvertAtTheSameTimeDoItOnce) {
  write_proteins(20'000);
  config_.eval_path = config_.path;
  std::vector<pid_t> processes;
  for (int i = 0; i < 4; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      const bool good = prepare_proteins(config_, Logger::silent()).has_value() && open_proteins(config_).has_value();
      _exit(good ? 0 : 1);
    }
    processes.push_back(pid);
  }
  for (const pid_t pid : processes) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(conversions().size(), 1U);
}

TEST_F(ProteinDataTest, ReportsThePlaceOfAnError) {
  EXPECT_THAT(failure(), testing::AllOf(HasSubstr("some.fasta: cannot be opened: No such file"),
                                        HasSubstr("(data.path)"), HasSubstr("apt-get install mmseqs2-examples")));
  write(">a\nACDEF\nAC?\n");
  EXPECT_THAT(failure(), HasSubstr("some.fasta:3: '?' at column 3"));
  EXPECT_THAT(conversions(), IsEmpty());
  config_.path = directory_.path();
  EXPECT_THAT(failure(), HasSubstr("not a regular file"));
}

int64_t peak_kilobytes() {
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Converts the file and looks at some of its sequences; false: it failed.
bool use(const ProteinDataConfig& config, int64_t expected) {
  if (!prepare_proteins(config, Logger::silent())) return false;
  const Result<ProteinSplits> splits = open_proteins(config);
  if (!splits || splits->train.size() + splits->eval.size() != expected) return false;
  std::vector<int64_t> out(512);
  for (int64_t i = 0; i < splits->train.size(); i += 100'000) splits->train.tokens(i, out);
  return true;
}

// A million sequences of 40 MB in all: neither converting nor opening may take memory by their number.
TEST_F(ProteinDataTest, AMillionSequencesTakeAConstantMemory) {
  constexpr int64_t kCount = 1'000'000;
  constexpr int64_t kMaxKilobytes = 8 * 1024;
  config_.held_out.fraction = 0.1;
  ProteinDataConfig small = config_;
  write_proteins(1000, 40);
  small.path += ".small";
  fs::rename(config_.path, small.path);
  write_proteins(kCount, 40);
  int channel[2];
  ASSERT_EQ(::pipe(channel), 0);
  const pid_t pid = fork();  // the peak of the memory is measured in a separate process
  if (pid == 0) {
    int64_t grown = -1;
    if (use(small, 1000)) {  // the code's own pages are there then
      const int64_t before = peak_kilobytes();
      if (use(config_, kCount)) grown = peak_kilobytes() - before;
    }
    _exit(::write(channel[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  int64_t grown = -1;
  ASSERT_EQ(::read(channel[0], &grown, sizeof grown), static_cast<ssize_t>(sizeof grown));
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  close(channel[0]);
  close(channel[1]);
  EXPECT_GE(grown, 0) << "it was not converted";
  EXPECT_LT(grown, kMaxKilobytes);
  RecordProperty("grown_kilobytes", static_cast<int>(grown));
}

// Debian's mmseqs2-examples: 20,000 proteins of UniProt, counted here by `zcat | grep`.
TEST_F(ProteinDataTest, ReadsRealProteins) {
  ASSERT_TRUE(fs::exists(kRealProteins)) << "scripts/setup build installs mmseqs2-examples";
  config_ = {};
  config_.cache = (directory_.path() / "cache").string();
  config_.filter.max_length = PackedRecords::kMaxLength;
  config_.filter.min_length = 1;
  config_.filter.max_unknown = 1;
  config_.path = kRealProteins;
  const fs::path out = directory_.path() / "out";
  fs::create_directory(out);
  const Result<ConversionCounts> counts =
      convert_fasta(config_.path, config_.filter, config_.held_out, out, Logger::silent());
  ASSERT_TRUE(counts) << counts.error().message;
  EXPECT_EQ(counts->records, 20'000);
  EXPECT_EQ(counts->train + counts->eval, 20'000);
  EXPECT_EQ(counts->unknown_residues, 3088 + 2 + 2);  // X, B, Z

  config_.filter = {};
  const ProteinSplits splits = open();
  EXPECT_LT(splits.train.size() + splits.eval.size(), 13'804);  // of 20 to 512 residues
  EXPECT_GT(splits.train.size() + splits.eval.size(), 13'700);  // less those with many X
  std::map<int64_t, int64_t> frequency;
  int64_t residues = 0;
  for (int64_t i = 0; i < splits.train.size(); ++i) {
    for (const int64_t token : tokens_of(splits.train, i)) {
      ++frequency[token];
      ++residues;
    }
  }
  EXPECT_EQ(frequency.size(), 20U);
  const auto most = std::max_element(frequency.begin(), frequency.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_EQ(most->first, encode('L'));  // leucine is the most frequent in nature, about a tenth
  EXPECT_NEAR(static_cast<double>(most->second) / static_cast<double>(residues), 0.1, 0.02);
}

}  // namespace
}  // namespace oarlock::protein_diffusion
