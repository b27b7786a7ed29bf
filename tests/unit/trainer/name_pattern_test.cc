// Regular expressions for parameter names: what they match, and which ones are rejected.
#include "trainer/config/name_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oarlock {
namespace {

using testing::HasSubstr;

constexpr char kName[] = "encoder.layers.11.self_attention.in_projection.weight";

bool is_found(const std::string& pattern, const std::string& name = kName) {
  const Result<NamePattern> parsed = NamePattern::parse(pattern);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed && parsed->is_found_in(name);
}

std::string problem_of(const std::string& pattern) {
  const Result<NamePattern> parsed = NamePattern::parse(pattern);
  EXPECT_FALSE(parsed) << pattern;
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code, ExitCode::kConfig);
  return parsed.error().message;
}

TEST(NamePattern, SearchesAnyPartOfName) {
  for (const char* pattern : {"weight$", "^encoder", "layers\\.\\d+\\.", "(bias|weight)", "layers\\.1{1,2}\\.", "[_]at",
                              "\\bself", ".", "", "^(?!.*bias)(?!.*norm)", "in_projection\\.(?=weight|bias)", "e.*?r",
                              "[[:alpha:](]+_proj", "[\\]a]ttention", "^enc(oder)?(?:\\.\\w+)+$"}) {
    EXPECT_TRUE(is_found(pattern)) << pattern;
  }
  for (const char* pattern :
       {"bias", "^layers", "weigh$", "layers\\.1\\.", "(?!.*weight)^enc", "decoder|head", "self$|^attention"}) {
    EXPECT_FALSE(is_found(pattern)) << pattern;
  }
  EXPECT_TRUE(is_found("^$", ""));
}

// With backtracking, each of these takes longer than the test may.
TEST(NamePattern, SearchesInPolynomialTime) {
  for (const char* pattern : {"((.*)*)*Q", "(.+)+Q", "(\\w|\\w|\\.)*Q", "(\\w+\\.?)+Q", "(.?){50}Q",
                              "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)Q", "^(?=((.*)*)*Q)((.*)*)*"}) {
    EXPECT_FALSE(is_found(pattern)) << pattern;
  }
}

TEST(NamePattern, RejectsInvalidAndCostlyPatterns) {
  for (const char* pattern : {"(", ")|(", "a)(b", "[a", "*a"}) {
    EXPECT_THAT(problem_of(pattern), HasSubstr("is not a regular expression")) << pattern;
  }
  EXPECT_THAT(problem_of("(\\w+)\\.\\1"), HasSubstr("back-reference"));
  for (const char* pattern : {"a{30000}", "((a{10}){10}){10}", "a{2,300}b", "a{99999999999999999999}"}) {
    EXPECT_THAT(problem_of(pattern), HasSubstr("the maximum is 512")) << pattern;
  }
  EXPECT_THAT(problem_of(std::string(513, 'a')), HasSubstr("use several groups"));
  for (const char* pattern : {"(?=.*(?=.*a))", "(?!^a)b", "(?=(a|\\b))", "a(?!b(c)[(]\\B)"}) {
    EXPECT_THAT(problem_of(pattern), HasSubstr("lookahead that contains")) << pattern;
  }
}

}  // namespace
}  // namespace oarlock
