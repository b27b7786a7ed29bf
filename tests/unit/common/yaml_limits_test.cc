// Files that are made to exhaust memory, stack, time or the reader of the messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "yaml/reader.h"

namespace oarlock::yaml {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string error_of(const std::string& text) {
  const auto documents = parse_all(text, "f.yaml");
  if (documents) return "";
  EXPECT_EQ(documents.error().code, ExitCode::kConfig);
  EXPECT_LT(documents.error().message.size(), 500u);
  return documents.error().message;
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// `levels` lists of nine aliases each to the one before: 9^levels values.
std::string alias_bomb(int levels, const std::string& first) {
  std::string text = "a0: &a0 " + first + "\n";
  for (int level = 1; level <= levels; ++level) {
    const std::string previous = "*a" + std::to_string(level - 1);
    text += "a" + std::to_string(level) + ": &a" + std::to_string(level) + " [" + previous;
    for (int i = 1; i < 9; ++i) text += ", " + previous;
    text += "]\n";
  }
  return text;
}

// Returns the problems that a reader of {nodes: int, b: {c: int}} reports for the document.
Problems problems_of(const std::string& text, const std::string& file) {
  const auto documents = parse_all(text, file);
  EXPECT_TRUE(documents) << documents.error().message;
  Problems problems(file);
  if (!documents) return problems;
  MapReader reader(documents->front(), "", problems);
  int number = 0;
  reader.read("nodes", number);
  reader.map("b", [&](MapReader& nested) { nested.read("c", number); });
  reader.finish();
  return problems;
}

// A test program that takes more than this is ended by std::bad_alloc, not by the machine's memory.
class YamlLimits : public testing::Test {
 protected:
  static void SetUpTestSuite() {
#ifndef OARLOCK_SANITIZED  // the sanitizers reserve terabytes of addresses
    const rlimit limit{.rlim_cur = size_t{2} << 30, .rlim_max = size_t{2} << 30};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
#endif
  }
};

TEST_F(YamlLimits, CountsExpandedAliases) {
  EXPECT_THAT(error_of(alias_bomb(9, "x")), HasSubstr("f.yaml:7:"));
  EXPECT_THAT(error_of(alias_bomb(100, "x")), HasSubstr("more than 200000 values, with its aliases expanded"));
  const auto small = parse_all(alias_bomb(4, "x"), "f.yaml");
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_EQ(small->front().find("a4")->to_json()[8][8][8][8], "x");
}

TEST_F(YamlLimits, CountsBytesOfAliases) {
  EXPECT_THAT(error_of(alias_bomb(5, std::string(100'000, 'x'))), HasSubstr("more than 8388608 bytes"));
  EXPECT_THAT(error_of("a: &a\n  ? " + std::string(100'000, 'k') + "\n  : 1\nb: [" + repeated("*a, ", 100) + "*a]\n"),
              HasSubstr("more than 8388608 bytes"));
}

TEST_F(YamlLimits, RejectsRecursiveAlias) {
  EXPECT_THAT(error_of("a: &a [*a, *a]\n"), HasSubstr("f.yaml:1:8: the alias is inside of the node"));
  EXPECT_THAT(error_of("&a {b: *a}\n"), HasSubstr("the alias is inside of the node"));
}

TEST_F(YamlLimits, LimitsDepthInEveryStyle) {
  for (const char* open : {"[", "{a: ", "[[", "[{a: [", "- ", "? ", "- ? "}) {
    EXPECT_NE(error_of(repeated(open, 100'000)), "") << open;
    EXPECT_NE(error_of(repeated(open, 300)), "") << open;
  }
  EXPECT_THAT(error_of(std::string(100'000, '[') + std::string(100'000, ']')),
              HasSubstr("f.yaml:1:201: lists and maps are nested deeper than 200 levels"));
  EXPECT_TRUE(parse_all(std::string(150, '[') + std::string(150, ']'), "f"));
  std::string blocks;
  for (int depth = 0; depth < 1000; ++depth) blocks += std::string(static_cast<size_t>(depth), ' ') + "a:\n";
  EXPECT_THAT(error_of(blocks), HasSubstr("nested deeper than 200 levels"));
}

TEST_F(YamlLimits, LimitsDepthOfExpandedAliases) {
  // Each list is 100 levels deep and contains the one before.
  std::string text = "a0: &a0 x\n";
  for (int i = 1; i < 1000; ++i) {
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " " + std::string(100, '[') + "*a" +
            std::to_string(i - 1) + std::string(100, ']') + "\n";
  }
  EXPECT_THAT(error_of(text), HasSubstr("f.yaml:3:109: lists and maps are nested deeper than 200 levels"));
}

TEST_F(YamlLimits, LimitsDocumentsAndSize) {
  EXPECT_THAT(error_of(repeated("--- a\n", 1001)), HasSubstr("f.yaml:1001:1: the file has more than 1000 documents"));
  EXPECT_THAT(error_of(repeated("---\n", 1001)), HasSubstr("more than 1000 documents"));
  EXPECT_TRUE(parse_all(repeated("--- a\n", 1000), "f"));
  EXPECT_THAT(error_of(repeated("---\n", 1'000'000)), HasSubstr("f.yaml: the file has more than 2097152 bytes"));
  EXPECT_THAT(error_of("[" + repeated("1,", 250'000) + "]"), HasSubstr("more than 200000 values"));
}

TEST_F(YamlLimits, ReadsEndlessFileUpToTheLimit) {
  const auto endless = load_all("/dev/zero");
  ASSERT_FALSE(endless);
  EXPECT_THAT(endless.error().message, HasSubstr("/dev/zero: the file has more than 2097152 bytes"));
}

TEST_F(YamlLimits, RejectsTagsThatExpandTooFar) {
  EXPECT_THAT(error_of("%TAG !e! " + std::string(100'000, 't') + "\n---\n[" + repeated("!e!x 1, ", 10'000) + "]\n"),
              HasSubstr("the tag has more than 1024 bytes"));
}

#ifdef OARLOCK_SANITIZED  // takes ten times as long
constexpr size_t kWorstBytes = limits::kFileBytes / 32;
#else
constexpr size_t kWorstBytes = limits::kFileBytes;
#endif

// Files of every token are read within the time and the memory of a test. In flow style, which takes longest, they have
// the largest size that is read at all.
TEST_F(YamlLimits, ReadsWorstFilesWithinSeconds) {
  for (const std::string unit :
       {"[",     "{",     "[a,",         "{a: ", "[1,1,1,", "&a ",       "!!a ",    "'",  "\"", "a\n",
        "a:\n",  "- a\n", "? - ",        "[]",   "- [\n",   "|",         "!",       "# ", "\n", "- &a x\n",
        "a: 1,", "\\",    "\"\\x41\"\n", ": ",   "<<: ",    "- |\n a\n", "- >\n\n", "a"}) {
    for (const std::string before : {"", "[", "{"}) {
      const size_t size = before == "[" ? kWorstBytes : limits::kFileBytes / 32;
      std::string text = before;
      while (text.size() + unit.size() <= size) text += unit;
      const std::clock_t begin = std::clock();  // of the CPU, so that other processes do not count
      const auto documents = parse_all(text, "f");
      EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 10) << before << unit;
      if (!documents) {
        EXPECT_LT(documents.error().message.size(), 500u);
      }
    }
  }
}

TEST_F(YamlLimits, CountsUnknownKeysBeyondTheLimit) {
  std::string text;
  for (int i = 0; i < 90'000; ++i) text += "k" + std::to_string(i) + ":\n";
  const Problems problems = problems_of(text, "f.yaml");
  EXPECT_EQ(problems.size(), 90'000u);
  const std::string message = problems.to_error().message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 20);
  EXPECT_THAT(message, AllOf(HasSubstr("f.yaml:20:1: k19: unknown key"), Not(HasSubstr("f.yaml:21:1:")),
                             testing::EndsWith("\nf.yaml: and 89980 more problems")));
}

TEST_F(YamlLimits, UsesSingularForOneMoreProblem) {
  Problems problems("f");
  for (int i = 0; i < 20; ++i) problems.add({i + 1, 1}, "a", "is wrong");
  EXPECT_THAT(problems.to_error().message, Not(HasSubstr("more")));
  problems.add({21, 1}, "a", "is wrong");
  EXPECT_THAT(problems.to_error().message, HasSubstr("\nf: and 1 more problem"));
}

TEST_F(YamlLimits, TruncatesLongValuesAndKeys) {
  const std::string x(100'000, 'x');
  for (const std::string& text :
       {"nodes: " + x, "nodes: \"" + x + "\"", "? " + x + "\n: 1", "b:\n  ? " + x + "\n  : 1"}) {
    const Problems problems = problems_of(text, "f");
    EXPECT_FALSE(problems.empty());
    EXPECT_THAT(problems.to_error().message, AllOf(HasSubstr("xxx..."), testing::SizeIs(testing::Lt(500u))));
  }
  EXPECT_THAT(error_of("? " + x + "\n: 1\n? " + x + "\n: 2\n"), HasSubstr("xxx...'; remove one"));
}

TEST_F(YamlLimits, EscapesControlCharactersInMessages) {
  EXPECT_EQ(problems_of("nodes: \"\\e[31m\\n\"\n\"k\\u009b\\u202e\": 1\n", "f\x1b.yaml").to_error().message,
            "f\\x1b.yaml:1:8: nodes: expected an integer, got the string \"\\x1b[31m\\n\"\n"
            "f\\x1b.yaml:2:1: k\\u009b\\u202e: unknown key; the known keys are nodes, b");
}

TEST_F(YamlLimits, RejectsControlCharactersAndOtherEncodings) {
  EXPECT_THAT(error_of("a: 1\nb: \x1b[31m\n"), HasSubstr("f.yaml:2:4: this is not YAML: the control character \\x1b"));
  // yaml-cpp takes U+0004 for the end of the file: what follows would be left out without a word.
  EXPECT_THAT(error_of("a: 1\n\x04nodes: 2\n"), HasSubstr("f.yaml:2:1: this is not YAML: the control character \\x04"));
  EXPECT_THAT(error_of(std::string("a: \0b", 5)), HasSubstr("the control character \\x00"));
  EXPECT_THAT(error_of("a: \x7f"), HasSubstr("the control character \\x7f"));
  EXPECT_THAT(error_of("a: \xc2\x80"), HasSubstr("the control character \\u0080"));
  EXPECT_THAT(error_of("a: \xff\n"), HasSubstr("f.yaml:1:4: this is not YAML: the byte \\xff is not UTF-8"));
  EXPECT_THAT(error_of(std::string("\xff\xfe"
                                   "a\0:\0",
                                   6)),
              HasSubstr("encoded as UTF-16, not as UTF-8"));
  EXPECT_TRUE(
      parse_all("\xef\xbb\xbf"
                "a: \xc3\xa9\t# \xf0\x9f\x9a\xa2\r\n",
                "f"));
}

TEST_F(YamlLimits, RejectsKeysThatAreNotStrings) {
  EXPECT_THAT(error_of("? [a]\n: 1\n"), HasSubstr("f.yaml:1:3: a key of a map is empty, a list or a map"));
  EXPECT_THAT(error_of("{: 1}\n"), HasSubstr("a key of a map is empty"));
  EXPECT_TRUE(parse_all("{\"\": 1, 4: 5}\n", "f"));
}

TEST_F(YamlLimits, TruncatesLongWordsOfCommandLine) {
  const Node root = empty_map();
  EXPECT_FALSE(with_overrides(root, {repeated("a.", 30'000) + "a=1"}));
  EXPECT_FALSE(with_overrides(root, {"a" + repeated("[0]", 30'000) + "=1"}));
  EXPECT_FALSE(with_overrides(root, {"a=" + repeated("[", 100'000)}));
  const Result<Node> bad = with_overrides(root, {std::string(100'000, 'x')});
  ASSERT_FALSE(bad);
  EXPECT_LT(bad.error().message.size(), 300u);
  EXPECT_EQ(suggest(std::string(1'000'000, 'x'), {"nodes"}), "");
}

}  // namespace
}  // namespace oarlock::yaml
