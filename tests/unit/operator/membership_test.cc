#include "operator/core/membership.h"

#include <gtest/gtest.h>

#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;

TEST(Membership, IdentifiesPodsByName) {
  const Job job = JobBuilder("bert-2");
  EXPECT_EQ(identify(job, "bert-2-0-1"), (PodIdentity{0, 1}));
  EXPECT_EQ(identify(job, "bert-2-12-340"), (PodIdentity{12, 340}));
  for (const char* name :
       {"bert-2", "bert-2-", "bert-2-1", "bert-2-1-", "bert-2--1", "bert-2-a-1", "bert-2-1-b", "bert-2-01-1",
        "bert-2-1-1-1", "bert-2-1-99999999999", "bert-2--1-1", "bert-2-+1-1", "x-bert-2-0-1", "bert-0-1", ""}) {
    EXPECT_FALSE(identify(job, name)) << name;
  }
}

std::vector<std::string> names_of(const std::vector<const Pod*>& pods) {
  std::vector<std::string> out;
  for (const Pod* pod : pods) out.push_back(pod == nullptr ? "-" : pod->name);
  return out;
}

TEST(Membership, Splits) {
  const Job job = JobBuilder().nodes(2).phase(Phase::kRunning, 2);
  Observed observed =
      seen(job, {PodBuilder("bert", 2, 1), PodBuilder("bert", 1, 1), PodBuilder("bert", 1, 0), PodBuilder("bert", 3, 0),
                 PodBuilder("bert", 2, 2), PodBuilder("bert", 2, 0).owner("other"),
                 PodBuilder("bert", 1, 0).owner("other"), PodBuilder("bert", 2, 0).name("notebook")});
  observed.services.push_back({"bert-extra", "s", kJobUid, false});
  const Membership members = split(observed);
  EXPECT_EQ(names_of(members.current), (std::vector<std::string>{"-", "bert-2-1"}));
  EXPECT_EQ(names_of(members.old), (std::vector<std::string>{"bert-1-0", "bert-1-1", "bert-2-2"}));
  EXPECT_EQ(names_of(members.ahead), (std::vector<std::string>{"bert-3-0"}));
  EXPECT_EQ(names_of(members.in_the_way), (std::vector<std::string>{"bert-2-0"}));
  ASSERT_NE(members.service, nullptr);
  EXPECT_EQ(members.service->name, "bert");
  EXPECT_EQ(members.service_in_the_way, nullptr);
}

TEST(Membership, AnEmptyUidOwnsNothing) {
  Job job = JobBuilder();
  job.metadata.uid.clear();
  const Observed observed = seen(job, {PodBuilder("bert", 0, 0).owner("")});
  EXPECT_EQ(names_of(split(observed).current), (std::vector<std::string>{"-", "-"}));
}

TEST(Membership, AForeignServiceIsInTheWay) {
  Observed observed = seen(JobBuilder());
  observed.services[0].owner_uid = "other";
  EXPECT_EQ(split(observed).service, nullptr);
  EXPECT_NE(split(observed).service_in_the_way, nullptr);
}

TEST(Membership, TheTrainerDecidesHowAPodEnded) {
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

TEST(Membership, ProgressComesFromNodeRankZeroWhileItRuns) {
  const Job job = JobBuilder().phase(Phase::kRunning, 1);
  const auto asked = [&](const Pod& pod) {
    const Observed observed = seen(job, {pod, PodBuilder("bert", 1, 1).running(), PodBuilder("bert", 0, 0).running()});
    const Pod* found = progress_pod(split(observed));
    return found == nullptr ? "" : found->name;
  };
  EXPECT_EQ(asked(PodBuilder("bert", 1, 0).running()), "bert-1-0");
  EXPECT_EQ(asked(PodBuilder("bert", 1, 0).scheduled()), "");
  EXPECT_EQ(asked(PodBuilder("bert", 1, 0).running().deleting()), "");
  EXPECT_EQ(asked(PodBuilder("bert", 1, 0).ended(0)), "");
  EXPECT_EQ(asked(PodBuilder("bert", 1, 0).running().owner("other")), "");
}

}  // namespace
}  // namespace oarlock::test
