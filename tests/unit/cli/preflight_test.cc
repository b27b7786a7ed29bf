// The pure parts of a preflight, and the checks of one node.
#include "cli/launch/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cli/launch/preflight_messages.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::launch {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const PreflightLimits kLimits{.min_mbps = 1000, .max_milliseconds = 5};

std::vector<std::optional<NodeHealth>> healthy(int nodes) {
  return std::vector<std::optional<NodeHealth>>(static_cast<size_t>(nodes), NodeHealth{.host = "host"});
}

// The links of a group in which those with a property are slow.
std::vector<LinkHealth> links(int nodes, const std::function<bool(int, int)>& is_slow) {
  std::vector<LinkHealth> out;
  for (const int distance : preflight_distances(nodes)) {
    for (int from = 0; from < nodes; ++from) {
      const int to = (from + distance) % nodes;
      out.push_back({.from = from, .to = to, .milliseconds = 0.1, .mbps = is_slow(from, to) ? 90 : 9000});
    }
  }
  return out;
}

std::vector<int> failed_nodes(const PreflightVerdict& verdict) {
  std::vector<int> out;
  for (const FailedNode& node : verdict.failed) out.push_back(node.node);
  return out;
}

struct LinkCase {
  const char* name;
  int nodes;
  std::function<bool(int, int)> is_slow;
  std::vector<int> failed;
  size_t named_links;
};

std::function<bool(int, int)> touches(const std::vector<int>& nodes) {
  return [nodes](int from, int to) {
    return std::ranges::find(nodes, from) != nodes.end() || std::ranges::find(nodes, to) != nodes.end();
  };
}

TEST(PreflightJudgement, NamesTheNodesThatExplainSlowLinks) {
  const auto none = [](int, int) { return false; };
  const auto all = [](int, int) { return true; };
  const auto between = [](int a, int b) {
    return [a, b](int from, int to) { return (from == a && to == b) || (from == b && to == a); };
  };
  const auto receives = [](int node) { return [node](int, int receiver) { return receiver == node; }; };
  const auto sends = [](int node) { return [node](int sender, int) { return sender == node; }; };
  const auto racks = [](int size) { return [size](int a, int b) { return a / size != b / size; }; };
  const std::vector<LinkCase> cases = {
      {.name = "healthy", .nodes = 4, .is_slow = none, .failed = {}, .named_links = 0},
      {.name = "one of three", .nodes = 3, .is_slow = touches({1}), .failed = {1}, .named_links = 0},
      {.name = "node rank 0", .nodes = 3, .is_slow = touches({0}), .failed = {0}, .named_links = 0},
      {.name = "one of 512", .nodes = 512, .is_slow = touches({300}), .failed = {300}, .named_links = 0},
      {.name = "neighbors of 512", .nodes = 512, .is_slow = touches({7, 8, 9}), .failed = {7, 8, 9}, .named_links = 0},
      {.name = "receives slowly, one of 3", .nodes = 3, .is_slow = receives(2), .failed = {2}, .named_links = 0},
      {.name = "receives slowly, one of 8", .nodes = 8, .is_slow = receives(3), .failed = {3}, .named_links = 0},
      {.name = "sends slowly, one of 16", .nodes = 16, .is_slow = sends(3), .failed = {3}, .named_links = 0},
      {.name = "two of five", .nodes = 5, .is_slow = touches({1, 2}), .failed = {1, 2}, .named_links = 0},
      {.name = "two of four", .nodes = 4, .is_slow = touches({1, 2}), .failed = {}, .named_links = 7},
      {.name = "one link", .nodes = 5, .is_slow = between(0, 1), .failed = {}, .named_links = 2},
      {.name = "a node, and a link that it does not explain",
       .nodes = 8,
       .is_slow = [](int from, int to) { return touches({1})(from, to) || (from == 4 && to == 5); },
       .failed = {},
       .named_links = 7},
      {.name = "two nodes", .nodes = 2, .is_slow = touches({1}), .failed = {}, .named_links = 2},
      {.name = "two of three", .nodes = 3, .is_slow = touches({1, 2}), .failed = {}, .named_links = 6},
      {.name = "a limit that no link meets", .nodes = 8, .is_slow = all, .failed = {}, .named_links = 24},
      {.name = "two racks of 2", .nodes = 4, .is_slow = racks(2), .failed = {}, .named_links = 6},
      {.name = "two racks of 3", .nodes = 6, .is_slow = racks(3), .failed = {}, .named_links = 10},
      {.name = "two racks of 4", .nodes = 8, .is_slow = racks(4), .failed = {}, .named_links = 14},
      {.name = "three racks of 3", .nodes = 9, .is_slow = racks(3), .failed = {}, .named_links = 18},
      {.name = "two racks of 16", .nodes = 32, .is_slow = racks(16), .failed = {}, .named_links = 14},
  };
  for (const LinkCase& one : cases) {
    SCOPED_TRACE(one.name);
    const PreflightVerdict verdict = judge_preflight(healthy(one.nodes), links(one.nodes, one.is_slow), kLimits);
    EXPECT_EQ(failed_nodes(verdict), one.failed);
    EXPECT_EQ(verdict.unattributed.size(), one.named_links);
    EXPECT_EQ(verdict.has_passed(), one.failed.empty() && one.named_links == 0);
  }
}

TEST(PreflightJudgement, StatesTheMeasurementsAndTheLimits) {
  const PreflightVerdict verdict = judge_preflight(healthy(3), links(3, touches({1})), kLimits);
  ASSERT_EQ(verdict.failed.size(), 1U);
  EXPECT_EQ(verdict.failed[0].reason,
            "network: 4 of its 4 links are slow: 90 Mbit/s (at least 1000), round trip 0.10 ms (at most 5)");
  EXPECT_EQ(verdict.summary, "6 links between 3 nodes; the slowest has 90 Mbit/s, the longest round trip 0.10 ms");
}

TEST(PreflightJudgement, MissingConnectionIsSlowWithoutLimits) {
  std::vector<LinkHealth> measured = links(3, [](int, int) { return false; });
  for (LinkHealth& link : measured) {
    if (touches({2})(link.from, link.to)) link.mbps.reset();
  }
  const PreflightVerdict verdict = judge_preflight(healthy(3), measured, {});
  EXPECT_EQ(failed_nodes(verdict), std::vector<int>{2});
  EXPECT_THAT(verdict.failed[0].reason, HasSubstr("no connection"));
  EXPECT_TRUE(judge_preflight(healthy(3), links(3, touches({1})), {}).has_passed()) << "without limits";
}

TEST(PreflightJudgement, LatencyAloneNamesANode) {
  std::vector<LinkHealth> measured = links(4, [](int, int) { return false; });
  for (LinkHealth& link : measured) {
    if (touches({3})(link.from, link.to)) link.milliseconds = 20;
  }
  EXPECT_EQ(failed_nodes(judge_preflight(healthy(4), measured, kLimits)), std::vector<int>{3});
}

TEST(PreflightJudgement, CheckNamesAMinorityOnly) {
  auto nodes = healthy(4);
  const CheckFailure read_only{kStorageCheck, "/checkpoints: read-only"};
  nodes[1]->failures = {read_only};
  PreflightVerdict verdict = judge_preflight(nodes, {}, {});
  ASSERT_EQ(verdict.failed, (std::vector<FailedNode>{{1, "storage: /checkpoints: read-only"}}));
  nodes[2]->failures = {{kDevicesCheck, "7 of 8 GPUs answer"}, read_only};
  verdict = judge_preflight(nodes, {}, {});
  EXPECT_EQ(failed_nodes(verdict), std::vector<int>{2}) << "of the devices, and half fail the storage";
  EXPECT_THAT(verdict.unattributed, ElementsAre("node rank 1 (host): storage: /checkpoints: read-only (2 of 4 nodes)"));
  const auto alone = judge_preflight({NodeHealth{.host = "host", .failures = {read_only}}}, {}, {});
  EXPECT_EQ(failed_nodes(alone), std::vector<int>{0}) << "the only node";
}

TEST(PreflightJudgement, DevicesOfSomeNodesNameThem) {
  const CheckFailure missing{kDevicesCheck, "7 of 8 GPUs answer"};
  auto nodes = healthy(2);
  nodes[1]->failures = {missing};
  EXPECT_EQ(failed_nodes(judge_preflight(nodes, {}, {})), std::vector<int>{1}) << "one of two";
  nodes[0]->failures = {missing};
  const PreflightVerdict verdict = judge_preflight(nodes, {}, {});
  EXPECT_THAT(failed_nodes(verdict), IsEmpty()) << "the number that the job requests is wrong";
  EXPECT_THAT(verdict.unattributed, ElementsAre("node rank 0 (host): devices: 7 of 8 GPUs answer (2 of 2 nodes)"));
  EXPECT_EQ(failed_nodes(judge_preflight({nodes[0]}, {}, {})), std::vector<int>{0}) << "the only node";
}

TEST(PreflightJudgement, FullVolumeNamesNone) {
  auto nodes = healthy(8);
  nodes[3]->failures = {{kStorageSpaceCheck, "/checkpoints: no space"}};
  const PreflightVerdict verdict = judge_preflight(nodes, {}, {});
  EXPECT_THAT(verdict.failed, IsEmpty());
  EXPECT_THAT(verdict.unattributed, ElementsAre(HasSubstr("storage space: /checkpoints: no space (1 of 8 nodes)")));
  EXPECT_THAT(judge_preflight({nodes[3]}, {}, {}).failed, IsEmpty()) << "the only node";
}

TEST(PreflightJudgement, SilentMinorityFails) {
  auto nodes = healthy(3);
  nodes[2].reset();
  const PreflightVerdict verdict = judge_preflight(nodes, {}, {});
  EXPECT_EQ(verdict.failed, (std::vector<FailedNode>{{2, "did not answer in time", true}}));
  nodes[1].reset();
  EXPECT_THAT(failed_nodes(judge_preflight(nodes, {}, {})), IsEmpty());
  EXPECT_THAT(judge_preflight(nodes, {}, {}).unattributed,
              ElementsAre("node rank 1: did not answer in time (2 of 3 nodes)"));
  EXPECT_THAT(failed_nodes(judge_preflight({NodeHealth{}, std::nullopt}, {}, {})), IsEmpty()) << "one of two";
}

TEST(PreflightJudgement, ClockIsComparedWithTheMedian) {
  auto nodes = healthy(3);
  for (auto& node : nodes) node->clock_offset = milliseconds(5000);  // that of node rank 0 is wrong
  nodes[0]->clock_offset = milliseconds(0);
  EXPECT_EQ(failed_nodes(judge_preflight(nodes, {}, {})), std::vector<int>{0});
  nodes[0]->clock_uncertainty = milliseconds(4000);
  EXPECT_TRUE(judge_preflight(nodes, {}, {}).has_passed());
  nodes[0]->clock_uncertainty = milliseconds(3999);
  EXPECT_FALSE(judge_preflight(nodes, {}, {}).has_passed());
  auto pair = healthy(2);
  pair[1]->clock_offset = milliseconds(-5000);
  const PreflightVerdict verdict = judge_preflight(pair, {}, {});
  EXPECT_THAT(verdict.failed, IsEmpty());
  EXPECT_THAT(verdict.unattributed, ElementsAre(HasSubstr("clock differs by")));
}

TEST(PreflightJudgement, ClocksWithoutAMajorityNameNone) {
  auto nodes = healthy(4);
  nodes[2]->clock_offset = nodes[3]->clock_offset = milliseconds(5000);
  EXPECT_THAT(judge_preflight(nodes, {}, {}).failed, IsEmpty());
  EXPECT_FALSE(judge_preflight(nodes, {}, {}).has_passed());
  auto spread = healthy(3);
  spread[1]->clock_offset = milliseconds(1500);
  spread[2]->clock_offset = milliseconds(3000);
  EXPECT_THAT(judge_preflight(spread, {}, {}).failed, IsEmpty());
  EXPECT_THAT(judge_preflight(spread, {}, {}).unattributed, ElementsAre(HasSubstr("(2 of 3 nodes)")));
}

TEST(PreflightJudgement, RoundsDoNotGrowWithTheGroup) {
  EXPECT_THAT(preflight_distances(1), IsEmpty());
  EXPECT_THAT(preflight_distances(2), ElementsAre(1));
  EXPECT_THAT(preflight_distances(4), ElementsAre(1, 2));
  EXPECT_THAT(preflight_distances(512), ElementsAre(1, 2, 4));
}

TEST(PreflightOutcome, OnlyTheFailedNodeReportsAHardwareFailure) {
  const PreflightVerdict named{.failed = {{1, "slow"}}};
  EXPECT_EQ(outcome_of(named, 1), (PreflightOutcome{79, 1, "slow"}));
  EXPECT_EQ(outcome_of(named, 0), (PreflightOutcome{76, -1, "node rank 1: slow"}));
  const PreflightVerdict silent{.failed = {{2, "did not answer in time", true}}};
  EXPECT_EQ(outcome_of(silent, 0), (PreflightOutcome{79, 2, "node rank 2: did not answer in time"}));
  EXPECT_EQ(outcome_of(silent, 1).exit_code, 76);
  const PreflightVerdict both{.failed = {{1, "slow"}, {2, "did not answer in time", true}}};
  EXPECT_EQ(outcome_of(both, 0).exit_code, 76) << "node rank 1 reports its failure";
  const PreflightVerdict link{.unattributed = {"the link is slow"}};
  EXPECT_EQ(outcome_of(link, 0), (PreflightOutcome{75, -1, "the link is slow"}));
  EXPECT_EQ(outcome_of({.unattributed = {"a", "b", "c", "d", "e", "f"}}, 0).message, "a; b; c; d; and 2 more");
  const auto all_slow = judge_preflight(healthy(4096), links(4096, [](int, int) { return true; }), kLimits);
  EXPECT_LT(to_json(outcome_of(all_slow, 0)).size(), 1000U) << "the message does not grow with the group";
  EXPECT_THAT(outcome_of(all_slow, 0).message, HasSubstr("; and 12284 more"));
  const PreflightVerdict passed{.summary = "6 links"};
  EXPECT_EQ(outcome_of(passed, 0), (PreflightOutcome{0, -1, "6 links"}));
  EXPECT_EQ(outcome_of(passed, 1), (PreflightOutcome{0, -1, ""})) << "once for the group";
}

TEST(PreflightSettings, AreParsed) {
  const auto settings = parse_preflight("timeout=60,devices=8,bandwidth=1e3,latency=0.5,shm=64");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->timeout.count(), 60);
  EXPECT_EQ(settings->devices, 8);
  EXPECT_EQ(settings->limits.min_mbps, 1000);
  EXPECT_EQ(settings->limits.max_milliseconds, 0.5);
  EXPECT_EQ(settings->min_shared_memory_mib, 64);
  for (const char* invalid :
       {"timeout=0", "timeout", "bandwith=1", "latency=inf", "bandwidth=nan", "devices=-1", "x"}) {
    SCOPED_TRACE(invalid);
    const auto refused = parse_preflight(invalid);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ExitCode::kUsage);
  }
}

TEST(PreflightMessages, AreReadAsTheyWereWritten) {
  const PreflightJoin join{
      .node = 3, .port = 4711, .host = "h", .time = milliseconds(17), .failures = {{"storage", "x"}}};
  EXPECT_EQ(preflight_join_from_json(to_json(join)), join);
  const PreflightRound round{.round = 2, .is_latency = true, .host = "10.0.0.1", .port = 5};
  EXPECT_EQ(preflight_round_from_json(to_json(round)), round);
  for (const PreflightResult& result : {PreflightResult{1, 0.25}, PreflightResult{1, std::nullopt}})
    EXPECT_EQ(preflight_result_from_json(to_json(result)), result);
  const PreflightOutcome outcome{79, 2, "slow"};
  EXPECT_EQ(preflight_outcome_from_json(to_json(outcome)), outcome);
  EXPECT_TRUE(is_clock_request(clock_request()));
  const auto extreme = preflight_join_from_json(R"({"join":{"node":1,"time":-9223372036854775808}})");
  ASSERT_TRUE(extreme);
  EXPECT_EQ(extreme->time.count(), 0) << "differences of times must not overflow";
  for (const std::string line : {"", "x", "[]", "{}", R"({"join":1})", R"({"result":[]})", R"({"outcome":"x"})"}) {
    EXPECT_FALSE(preflight_join_from_json(line) || preflight_result_from_json(line) ||
                 preflight_outcome_from_json(line) || preflight_round_from_json(line) || is_clock_request(line))
        << line;
  }
}

// ---- Checks of one node ----

class PreflightChecks : public testing::Test {
 protected:
  NodeChecks checks() const { return {.shared_memory = directory_.path()}; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_.path() / name) << text;
    fs::permissions(directory_.path() / name, fs::perms::owner_all);
  }

  test::TemporaryDirectory directory_;
};

TEST_F(PreflightChecks, StorageIsTheNearestDirectoryThatExists) {
  NodeChecks of_new = checks();
  of_new.storage = directory_.path() / "job/checkpoints";
  EXPECT_THAT(check_node(of_new), IsEmpty());
  EXPECT_TRUE(fs::is_empty(directory_.path())) << "it leaves nothing";
  NodeChecks read_only = checks();
  read_only.storage = "/proc/job";
  const std::vector<CheckFailure> failures = check_node(read_only);
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].check, kStorageCheck);
  EXPECT_THAT(failures[0].message, HasSubstr("/proc/.oarlock-preflight: cannot be created"));
}

TEST_F(PreflightChecks, StorageMayBeRelative) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_.path());
  NodeChecks relative = checks();
  relative.storage = "job/checkpoints";
  EXPECT_THAT(check_node(relative), IsEmpty());
  fs::current_path(before);
}

TEST_F(PreflightChecks, OnlyMissingDirectoriesAreReplacedByTheirParents) {
  NodeChecks unusable = checks();
  unusable.storage = directory_.path() / std::string(300, 'x') / "checkpoints";  // ENAMETOOLONG
  const std::vector<CheckFailure> failures = check_node(unusable);
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].check, kStorageCheck);
  EXPECT_THAT(failures[0].message, HasSubstr("File name too long"));
}

TEST_F(PreflightChecks, FileOfAKilledLauncherIsReplaced) {
  NodeChecks next = checks();
  next.storage = directory_.path();
  write(next.file_name, "left over");
  EXPECT_THAT(check_node(next), IsEmpty());
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(PreflightChecks, SharedMemoryMustHaveTheSize) {
  NodeChecks small = checks();
  small.min_shared_memory = std::numeric_limits<int64_t>::max();
  const std::vector<CheckFailure> failures = check_node(small);
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].check, kSharedMemoryCheck);
  EXPECT_THAT(failures[0].message, HasSubstr("less than"));
}

// The directory stands for /dev, and a script for nvidia-smi.
TEST_F(PreflightChecks, DevicesMustBeVisibleAndAnswer) {
  const char* path = std::getenv("PATH");
  ASSERT_NE(path, nullptr);
  const std::string before = path;
  ::setenv("PATH", (directory_.path().string() + ":" + before).c_str(), 1);
  write("nvidia0", "");
  write("nvidia1", "");
  NodeChecks two = checks();
  two.device_directory = directory_.path();
  two.devices = 2;
  const auto message_of = [&](const std::string& script) -> std::string {
    write("nvidia-smi", "#!/bin/sh\n" + script);
    const std::vector<CheckFailure> failures = check_node(two);
    return failures.empty() ? "" : failures[0].check + ": " + failures[0].message;
  };
  const std::string list = "echo 'GPU 0: H100 (UUID: a)'; echo 'GPU 1: H100 (UUID: b)'\n";
  EXPECT_EQ(message_of(list), "");
  EXPECT_EQ(message_of("exit 127\n"), "") << "an image without the program";
  EXPECT_THAT(message_of("echo 'GPU 0: H100 (UUID: a)'; echo 'Unable to determine the device handle'\n"),
              HasSubstr("devices: 1 of 2 GPUs answer"));
  EXPECT_THAT(message_of("echo 'GPU is lost'; exit 15\n"), HasSubstr("exit code 15: GPU is lost"));
  fs::remove(directory_.path() / "nvidia1");
  EXPECT_EQ(message_of(list), "devices: 1 of 2 GPUs are visible");
  const std::string mig = "echo 'GPU 0: A100 (UUID: a)'; echo '  MIG 1g.5gb     Device  0: (UUID: b)'\n";
  EXPECT_EQ(message_of(mig + "echo '  MIG 1g.5gb     Device  1: (UUID: c)'\n"), "") << "with one device file";
  EXPECT_THAT(message_of(mig), HasSubstr("devices: 1 of 2 GPUs answer"));
  two.device_limit = milliseconds(100);
  EXPECT_THAT(message_of("exec sleep 1000\n"), HasSubstr("nvidia-smi did not answer"));
  ::setenv("PATH", before.c_str(), 1);
}

}  // namespace
}  // namespace oarlock::launch
