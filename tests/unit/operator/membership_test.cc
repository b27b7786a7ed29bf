#include "operator/core/membership.h"

#include <gtest/gtest.h>

#include "operator/core/text.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;

TEST(Membership, ParsesPodNames) {
  const Job job = JobBuilder("bert-2");
  EXPECT_EQ(parse_pod_name(job, "bert-2-0-1"), (PodIdentity{0, 1}));
  EXPECT_EQ(parse_pod_name(job, "bert-2-12-340"), (PodIdentity{12, 340}));
  for (const char* name :
       {"bert-2", "bert-2-", "bert-2-1", "bert-2-1-", "bert-2--1", "bert-2-a-1", "bert-2-1-b", "bert-2-01-1",
        "bert-2-1-1-1", "bert-2-1-99999999999", "bert-2--1-1", "bert-2-+1-1", "x-bert-2-0-1", "bert-0-1", ""}) {
    EXPECT_FALSE(parse_pod_name(job, name)) << name;
  }
}

std::vector<std::string> names_of(const std::vector<const Pod*>& pods) {
  std::vector<std::string> out;
  for (const Pod* pod : pods) out.push_back(pod == nullptr ? "-" : pod->name);
  return out;
}

TEST(Membership, ClassifiesPodsByAttemptAndOwner) {
  const Job job = JobBuilder().nodes(2).phase(Phase::kRunning, 2);
  Observed observed =
      seen(job, {PodBuilder("bert", 2, 1), PodBuilder("bert", 1, 1), PodBuilder("bert", 1, 0), PodBuilder("bert", 3, 0),
                 PodBuilder("bert", 2, 2), PodBuilder("bert", 2, 0).owner("other"),
                 PodBuilder("bert", 1, 0).owner("other"), PodBuilder("bert", 2, 0).name("notebook")});
  observed.services.push_back({"bert-extra", "s", kJobUid, false});
  const Membership members = classify_objects(observed);
  EXPECT_EQ(names_of(members.current), (std::vector<std::string>{"-", "bert-2-1"}));
  EXPECT_EQ(names_of(members.old), (std::vector<std::string>{"bert-1-0", "bert-1-1", "bert-2-2"}));
  EXPECT_EQ(names_of(members.newer), (std::vector<std::string>{"bert-3-0"}));
  EXPECT_EQ(names_of(members.conflicting_pods), (std::vector<std::string>{"bert-2-0"}));
  ASSERT_NE(members.service, nullptr);
  EXPECT_EQ(members.service->name, "bert");
  EXPECT_EQ(members.conflicting_service, nullptr);
}

TEST(Membership, EmptyUidOwnsNoObjects) {
  Job job = JobBuilder();
  job.metadata.uid.clear();
  const Observed observed = seen(job, {PodBuilder("bert", 0, 0).owner("")});
  EXPECT_EQ(names_of(classify_objects(observed).current), (std::vector<std::string>{"-", "-"}));
}

TEST(Membership, ForeignServiceConflicts) {
  Observed observed = seen(JobBuilder());
  observed.services.at(0).owner_uid = "other";
  EXPECT_EQ(classify_objects(observed).service, nullptr);
  EXPECT_NE(classify_objects(observed).conflicting_service, nullptr);
}

TEST(Membership, TrainerContainerDecidesHowPodEnded) {
  EXPECT_FALSE(has_ended(PodBuilder("bert", 0, 0).running()));
  EXPECT_TRUE(has_ended(PodBuilder("bert", 0, 0).trainer_ended(0)));
  EXPECT_TRUE(has_succeeded(PodBuilder("bert", 0, 0).trainer_ended(0)));
  EXPECT_FALSE(has_succeeded(PodBuilder("bert", 0, 0).trainer_ended(1)));
  EXPECT_TRUE(has_ended(PodBuilder("bert", 0, 0).evicted()));
  EXPECT_FALSE(has_succeeded(PodBuilder("bert", 0, 0).evicted()));
  Pod sidecar_failed = PodBuilder("bert", 0, 0).ended(0);
  sidecar_failed.phase = PodPhase::kFailed;
  EXPECT_TRUE(has_succeeded(sidecar_failed));
}

// Many programs exit with 0 on SIGTERM, so exit code 0 of a stopped pod is not sufficient evidence of success.
TEST(Membership, StoppedPodSucceedsOnlyWithEvidence) {
  struct Row {
    const char* name;
    Pod pod;
    bool has_succeeded;
  };
  const auto pod = [] { return PodBuilder("bert", 0, 0); };
  const std::string completed = R"({"rank":0,"step":9,"checkpointStep":9,"reason":"Completed","message":""})";
  const std::string interrupted = R"({"rank":0,"step":9,"checkpointStep":9,"reason":"Interrupted","message":""})";
  Pod shut_down = pod().ended(0);
  shut_down.phase = PodPhase::kFailed;
  shut_down.reason = "Terminated";
  Pod no_container = pod().ended(0).deleting();
  no_container.trainer.reset();
  const Row rows[] = {
      {.name = "not stopped", .pod = pod().ended(0), .has_succeeded = true},
      {.name = "deleted", .pod = pod().trainer_ended(0).deleting(), .has_succeeded = false},
      {.name = "drained", .pod = pod().ended(0).disrupted("EvictionByEvictionAPI"), .has_succeeded = false},
      {.name = "its node shuts down", .pod = shut_down, .has_succeeded = false},
      {.name = "deleted, of unknown end", .pod = no_container, .has_succeeded = false},
      {.name = "deleted when complete", .pod = pod().ended(0, completed).deleting(), .has_succeeded = true},
      {.name = "drained when complete", .pod = pod().ended(0, completed).disrupted("x"), .has_succeeded = true},
      {.name = "deleted, reports it", .pod = pod().ended(0, interrupted).deleting(), .has_succeeded = false},
      {.name = "ended long before",
       .pod = pod().ended(0).finished_at(at_second(20)).deleting().stop_requested(at_second(31)),
       .has_succeeded = true},
      {.name = "ended within the clocks' tolerance",
       .pod = pod().ended(0).finished_at(at_second(20)).deleting().stop_requested(at_second(30)),
       .has_succeeded = false},
      {.name = "ended after the request",
       .pod = pod().ended(0).finished_at(at_second(31)).deleting().stop_requested(at_second(30)),
       .has_succeeded = false},
      {.name = "failed when complete", .pod = pod().ended(1, completed).deleting(), .has_succeeded = false},
  };
  for (const Row& row : rows) EXPECT_EQ(has_succeeded(row.pod), row.has_succeeded) << row.name;
}

TEST(Membership, UsesFinishedRanksOfCurrentAttemptOnly) {
  const auto finished = [](const Job& job) { return classify_objects(seen(job)).finished; };
  const JobBuilder job = JobBuilder().nodes(3).phase(Phase::kRunning, 2);
  EXPECT_EQ(finished(job), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(finished(JobBuilder(job).finished(2, "0-1")), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(finished(JobBuilder(job).finished(1, "0-1")), (std::vector<bool>{false, false, false}));
  EXPECT_TRUE(is_recorded_finished(classify_objects(seen(JobBuilder(job).finished(2, "1"))), 1));
  EXPECT_FALSE(is_recorded_finished(Membership{}, 0));
}

TEST(RankSet, RoundTripsInCompactFormat) {
  struct Row {
    std::vector<bool> ranks;
    const char* text;
  };
  const Row rows[] = {
      {.ranks = {}, .text = ""},
      {.ranks = {false, false}, .text = ""},
      {.ranks = {true}, .text = "0"},
      {.ranks = {true, true, true, false, false, true}, .text = "0-2,5"},
      {.ranks = {false, true, false, true, true}, .text = "1,3-4"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(format_rank_set(row.ranks), row.text);
    EXPECT_EQ(parse_rank_set(row.text, row.ranks.size()), row.ranks);
  }
  std::vector<bool> every_other(4096);
  for (size_t rank = 0; rank < every_other.size(); rank += 2) every_other[rank] = true;
  EXPECT_LT(format_rank_set(every_other).size(), 10000U) << "the longest text";
  EXPECT_EQ(parse_rank_set(format_rank_set(every_other), every_other.size()), every_other);
}

TEST(RankSet, IgnoresMalformedItems) {
  const std::vector<bool> none(3);
  for (const char* text : {"x", "-1", "1-", "-", ",", "0x1", " 1", "3", "3-99999999999999999999", "2-1", "1-2-3"}) {
    EXPECT_EQ(parse_rank_set(text, 3), none) << text;
  }
  EXPECT_EQ(parse_rank_set("x,1,,2-18446744073709551615", 3), (std::vector<bool>{false, true, true}));
}

TEST(Membership, ProgressPodIsRunningNodeRankZero) {
  const Job job = JobBuilder().phase(Phase::kRunning, 1);
  const auto progress_pod_of = [&](const Pod& pod) {
    const Observed observed = seen(job, {pod, PodBuilder("bert", 1, 1).running(), PodBuilder("bert", 0, 0).running()});
    const Pod* found = progress_pod(classify_objects(observed));
    return found == nullptr ? "" : found->name;
  };
  EXPECT_EQ(progress_pod_of(PodBuilder("bert", 1, 0).running()), "bert-1-0");
  EXPECT_EQ(progress_pod_of(PodBuilder("bert", 1, 0).scheduled()), "");
  EXPECT_EQ(progress_pod_of(PodBuilder("bert", 1, 0).running().deleting()), "");
  EXPECT_EQ(progress_pod_of(PodBuilder("bert", 1, 0).ended(0)), "");
  EXPECT_EQ(progress_pod_of(PodBuilder("bert", 1, 0).running().owner("other")), "");
}

}  // namespace
}  // namespace oarlock::test
