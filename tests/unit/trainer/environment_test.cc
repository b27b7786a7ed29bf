// The environment contract as a table: what each set of variables means, or the one line that says what is wrong.
#include "trainer/process/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace oarlock {
namespace {

using Variables = std::map<std::string, std::string>;

Result<RankEnvironment> read(const Variables& variables) {
  return read_environment([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

Variables two_ranks() {
  return {{"RANK", "1"},           {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "0"},     {"LOCAL_WORLD_SIZE", "1"},
          {"NODE_RANK", "1"},      {"MASTER_ADDR", "job-0-0.job"},
          {"MASTER_PORT", "29500"}};
}

TEST(Environment, NothingSetIsASingleProcess) {
  const auto environment = read({});
  ASSERT_TRUE(environment);
  EXPECT_EQ(*environment, RankEnvironment{});
}

TEST(Environment, EmptyValuesCountAsNotSet) {
  const auto environment = read({{"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_ADDR", ""}, {"OARLOCK_ATTEMPT", ""}});
  ASSERT_TRUE(environment);
  EXPECT_EQ(*environment, RankEnvironment{});
}

TEST(Environment, TheWholeContract) {
  Variables variables = two_ranks();
  variables.merge(Variables{{"OARLOCK_JOB", "mnist"},
                            {"OARLOCK_NAMESPACE", "ml"},
                            {"OARLOCK_UID", "u-1"},
                            {"OARLOCK_ATTEMPT", "3"},
                            {"OARLOCK_CONFIG", "/etc/oarlock/trainer.json"},
                            {"OARLOCK_CHECKPOINT_DIR", "/ck/mnist"},
                            {"OARLOCK_METRICS_PORT", "9400"},
                            {"OARLOCK_TERMINATION_LOG", "/tmp/t"}});
  const auto environment = read(variables);
  ASSERT_TRUE(environment) << environment.error().message;
  RankEnvironment expected;
  expected.rank = 1;
  expected.world_size = 2;
  expected.node_rank = 1;
  expected.master_addr = "job-0-0.job";
  expected.master_port = 29500;
  expected.job = "mnist";
  expected.job_namespace = "ml";
  expected.uid = "u-1";
  expected.attempt = 3;
  expected.config = "/etc/oarlock/trainer.json";
  expected.checkpoint_dir = "/ck/mnist";
  expected.metrics_port = 9400;
  expected.termination_log = "/tmp/t";
  EXPECT_EQ(*environment, expected);
}

TEST(Environment, AWorldOfOneNeedsNoMaster) {
  const auto environment = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->world_size, 1);
}

TEST(Environment, LocalNumbersMayBeLeftOut) {
  Variables variables = two_ranks();
  variables.erase("LOCAL_RANK");
  variables.erase("LOCAL_WORLD_SIZE");
  const auto environment = read(variables);
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->local_rank, 0);
  EXPECT_EQ(environment->local_world_size, 1);
}

struct WrongCase {
  const char* name;
  Variables changes;               // an empty value removes the variable
  std::vector<std::string> words;  // in the message: the variable, its value, what to do
};

class WrongEnvironment : public testing::TestWithParam<WrongCase> {};

TEST_P(WrongEnvironment, IsOneLineThatNamesVariableValueAndRemedy) {
  Variables variables = two_ranks();
  for (const auto& [name, value] : GetParam().changes) variables[name] = value;
  const auto environment = read(variables);
  ASSERT_FALSE(environment);
  EXPECT_EQ(environment.error().code, ExitCode::kConfig);
  EXPECT_THAT(environment.error().message, testing::Not(testing::HasSubstr("\n")));
  for (const std::string& word : GetParam().words) EXPECT_THAT(environment.error().message, testing::HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, WrongEnvironment,
    testing::Values(
        WrongCase{"no_master_addr", {{"MASTER_ADDR", ""}}, {"MASTER_ADDR", "not set", "WORLD_SIZE=2", "rank 0"}},
        WrongCase{"no_master_port", {{"MASTER_PORT", ""}}, {"MASTER_PORT", "not set", "29500"}},
        WrongCase{"no_rank", {{"RANK", ""}}, {"RANK", "not set", "WORLD_SIZE=2", "0 .. 1"}},
        WrongCase{"no_world_size", {{"WORLD_SIZE", ""}}, {"WORLD_SIZE", "not set", "RANK=1"}},
        WrongCase{"rank_too_large", {{"RANK", "2"}}, {"RANK=2", "WORLD_SIZE=2", "the last is 1"}},
        WrongCase{"rank_negative", {{"RANK", "-1"}}, {"RANK='-1'", "at least 0"}},
        WrongCase{"rank_text", {{"RANK", "one"}}, {"RANK='one'", "not an integer"}},
        WrongCase{"rank_with_tail", {{"RANK", "1 "}}, {"RANK='1 '", "not an integer"}},
        WrongCase{"rank_huge", {{"RANK", "99999999999"}}, {"RANK='99999999999'"}},
        WrongCase{"world_size_zero", {{"WORLD_SIZE", "0"}}, {"WORLD_SIZE='0'", "at least 1"}},
        WrongCase{
            "local_rank_too_large", {{"LOCAL_RANK", "1"}}, {"LOCAL_RANK=1", "LOCAL_WORLD_SIZE=1", "the last is 0"}},
        WrongCase{
            "local_rank_alone", {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", ""}}, {"LOCAL_WORLD_SIZE", "LOCAL_RANK=1"}},
        WrongCase{"local_world_size_alone",
                  {{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", "2"}},
                  {"LOCAL_RANK", "LOCAL_WORLD_SIZE=2"}},
        WrongCase{"node_larger_than_job", {{"LOCAL_WORLD_SIZE", "4"}}, {"LOCAL_WORLD_SIZE=4", "WORLD_SIZE=2"}},
        WrongCase{"port_zero", {{"MASTER_PORT", "0"}}, {"MASTER_PORT='0'", "from 1 to 65535"}},
        WrongCase{"port_too_large", {{"MASTER_PORT", "70000"}}, {"MASTER_PORT='70000'", "from 1 to 65535"}},
        WrongCase{"attempt_text", {{"OARLOCK_ATTEMPT", "x"}}, {"OARLOCK_ATTEMPT='x'"}},
        WrongCase{"metrics_port_too_large", {{"OARLOCK_METRICS_PORT", "65536"}}, {"OARLOCK_METRICS_PORT='65536'"}}),
    [](const auto& test_case) { return std::string(test_case.param.name); });

}  // namespace
}  // namespace oarlock
