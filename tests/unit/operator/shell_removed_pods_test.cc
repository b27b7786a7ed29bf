#include "operator/shell/cache.h"

#include <gtest/gtest.h>

#include "api/rules.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;

class RemovedPodsTest : public ::testing::Test {
 protected:
  void remove(const Pod& pod, const Job& job, bool is_gone = true) {
    removed_.add(key_, {pod, "bert"}, is_gone, [&] { return std::make_shared<const Job>(job); });
  }
  std::vector<std::string> names(std::vector<Pod> pods = {}) const {
    removed_.append_to(key_, pods);
    std::vector<std::string> out;
    for (const Pod& pod : pods) out.push_back(pod.name);
    return out;
  }

  const kube::ObjectKey key_{"ns", "bert"};
  RemovedPods removed_;
};

TEST_F(RemovedPodsTest, KeepsDonePodsUntilTheStatusRecordsThem) {
  const Job running = JobBuilder().phase(Phase::kRunning);
  const Pod pod = PodBuilder("bert", 0, 1).ended(0);
  remove(pod, running);
  EXPECT_EQ(names(), std::vector<std::string>{"bert-0-1"});
  std::vector<Pod> pods;
  removed_.append_to(key_, pods);
  EXPECT_EQ(pods.at(0), pod) << "as it was last seen";
  removed_.append_to({"ns", "other"}, pods);
  EXPECT_EQ(pods.size(), 1U);

  const Job other_rank = JobBuilder().phase(Phase::kRunning).finished(0, "0");
  removed_.forget_recorded(key_, &other_rank);
  EXPECT_EQ(names().size(), 1U);
  const Job recorded = JobBuilder().phase(Phase::kRunning).finished(0, "0-1");
  removed_.forget_recorded(key_, &recorded);
  EXPECT_TRUE(names().empty());
}

TEST_F(RemovedPodsTest, ForgetsPodsThatJobNoLongerNeeds) {
  Job other_uid = JobBuilder().phase(Phase::kRunning);
  other_uid.metadata.uid = "uid-of-the-next-job";
  const Job next_attempt = JobBuilder().phase(Phase::kRunning, 1);
  const Job ended = JobBuilder().phase(Phase::kFailed);
  for (const Job* job :
       {static_cast<const Job*>(nullptr), static_cast<const Job*>(&other_uid), &next_attempt, &ended}) {
    remove(PodBuilder("bert", 0, 1).ended(0), JobBuilder().phase(Phase::kRunning));
    ASSERT_EQ(names().size(), 1U);
    removed_.forget_recorded(key_, job);
    EXPECT_TRUE(names().empty());
  }
}

// The cause of a failure would otherwise be lost with a pod that disappears before the job is reconciled.
TEST_F(RemovedPodsTest, KeepsTheCauseWhileTheGroupRuns) {
  const Pod evicted = PodBuilder("bert", 0, 1).evicted("Evicted");
  const Pod failed = PodBuilder("bert", 0, 1).ended(1);
  const Pod deleted = PodBuilder("bert", 0, 1).running().deleting();
  for (const Pod& pod : {evicted, failed, deleted}) {
    remove(pod, JobBuilder().phase(Phase::kRunning));
    EXPECT_EQ(names(), std::vector<std::string>{"bert-0-1"});
    const Job suspended = JobBuilder().phase(Phase::kSuspended);
    removed_.forget_recorded(key_, &suspended);
    EXPECT_TRUE(names().empty()) << "the operator deletes its pods";
    remove(pod, JobBuilder().phase(Phase::kPending));
    EXPECT_TRUE(names().empty()) << "a pod is created in its place";
  }
}

// An eviction sets the condition, and then marks the pod for deletion; the pod saves its state, and ends.
TEST_F(RemovedPodsTest, TheLastStateOfADeletedPodCounts) {
  const JobBuilder running = JobBuilder().phase(Phase::kRunning);
  const Pod disrupted = PodBuilder("bert", 0, 1).running().disrupted("EvictionByEvictionAPI");
  remove(disrupted, running, /*is_gone=*/false);
  EXPECT_TRUE(names().empty()) << "it still exists";
  const Pod deleting = PodBuilder("bert", 0, 1).running().deleting();
  remove(deleting, running, /*is_gone=*/false);
  EXPECT_TRUE(names().empty());
  const Pod ended = PodBuilder("bert", 0, 1).trainer_ended(75).deleting();
  remove(ended, running);
  std::vector<Pod> pods = {};
  removed_.append_to(key_, pods);
  ASSERT_EQ(pods.size(), 1U);
  EXPECT_EQ(pods[0], ended);
}

TEST_F(RemovedPodsTest, IgnoresPodsNotDoneOrNotNeeded) {
  const JobBuilder running = JobBuilder().phase(Phase::kRunning);
  remove(PodBuilder("bert", 0, 1).running(), running);
  remove(PodBuilder("bert", 0, 1).ended(0).owner("other"), running);
  remove(PodBuilder("bert", 0, 7).ended(0), running);
  remove(PodBuilder("bert", 0, 1).ended(0).name("notebook"), running);
  remove(PodBuilder("bert", 0, 1).ended(0), JobBuilder().phase(Phase::kRunning, 1));
  remove(PodBuilder("bert", 0, 1).ended(0), JobBuilder().phase(Phase::kComplete));
  remove(PodBuilder("bert", 0, 1).ended(0), JobBuilder(running).finished(0, "1"));
  removed_.add(key_, {PodBuilder("bert", 0, 1).ended(0), "bert"}, true, [] { return nullptr; });
  Job elsewhere = running;
  elsewhere.spec.managed_by = "example.com/other";
  remove(PodBuilder("bert", 0, 1).ended(0), elsewhere);
  Job deleting = running;
  deleting.metadata.deletion_timestamp = SystemTime{};
  remove(PodBuilder("bert", 0, 1).ended(0), deleting);
  remove(PodBuilder("bert", 5, api::rules::kMaxNodes).ended(0), running);
  EXPECT_TRUE(names().empty());
}

// A tenant can create pods that look like those of a later attempt, and remove them.
TEST_F(RemovedPodsTest, LimitsPodsOfOneJobAndOfAllJobs) {
  const Job running = JobBuilder().phase(Phase::kRunning);
  const auto owner = [&] { return std::make_shared<const Job>(running); };
  for (int attempt = 0; attempt < 20'000; ++attempt) remove(PodBuilder("bert", attempt, 0).ended(0), running);
  EXPECT_EQ(names().size(), RemovedPods::kMaxOfJob);
  for (const char* name : {"a", "b", "c"}) {
    for (int attempt = 0; attempt < 10'000; ++attempt)
      removed_.add({"ns", name}, {PodBuilder("bert", attempt, 0).ended(0), name}, true, owner);
  }
  size_t all = names().size();
  for (const char* name : {"a", "b", "c"}) {
    std::vector<Pod> pods;
    removed_.append_to({"ns", name}, pods);
    all += pods.size();
  }
  EXPECT_EQ(all, RemovedPods::kMaxPods);
  removed_.forget_recorded(key_, nullptr);
  removed_.add({"ns", "d"}, {PodBuilder("bert", 0, 0).ended(0), "d"}, true, owner);
  std::vector<Pod> pods;
  removed_.append_to({"ns", "d"}, pods);
  EXPECT_EQ(pods.size(), 1U) << "there is space again";
}

TEST_F(RemovedPodsTest, OneNamespaceDoesNotTakeThePlaceOfTheOthers) {
  const Job running = JobBuilder().phase(Phase::kRunning);
  const auto owner = [&] { return std::make_shared<const Job>(running); };
  remove(PodBuilder("bert", 0, 1).ended(0), running);
  for (const char* name : {"a", "b", "c"}) {
    for (int attempt = 0; attempt < 8'000; ++attempt)
      removed_.add({"evil", name}, {PodBuilder("bert", attempt, 0).ended(0), name}, true, owner);
  }
  EXPECT_EQ(names(), std::vector<std::string>{"bert-0-1"});
  removed_.add({"other", "bert"}, {PodBuilder("bert", 0, 0).ended(0), "bert"}, true, owner);
  std::vector<Pod> pods;
  removed_.append_to({"other", "bert"}, pods);
  EXPECT_EQ(pods.size(), 1U);
}

// Only the complete job shows whether a rule ignores the failure.
TEST_F(RemovedPodsTest, KeepsTerminatedPodsOfTrimmedJob) {
  Job trimmed = JobBuilder().phase(Phase::kRunning);
  trimmed.report.is_trimmed = true;
  remove(PodBuilder("bert", 0, 0).running(), trimmed);
  EXPECT_TRUE(names().empty());
  remove(PodBuilder("bert", 0, 1).ended(3), trimmed);
  EXPECT_EQ(names(), std::vector<std::string>{"bert-0-1"});
  const PodBuilder ended_before = PodBuilder("bert", 0, 0).uid("other").trainer_ended(3).finished_at(at_second(20));
  remove(PodBuilder(ended_before).deleting().stop_requested(at_second(31)), trimmed);
  EXPECT_EQ(names().size(), 2U);
}

// The operator deletes a lost pod after it has recorded the replacement. The new pod has the same name.
TEST_F(RemovedPodsTest, ForgetsPodsThatAreReplaced) {
  Job trimmed = JobBuilder().phase(Phase::kRunning);
  trimmed.report.is_trimmed = true;
  const Pod lost = PodBuilder("bert", 0, 1).ended(137);
  Job replacing = trimmed;
  replacing.status.replacements = {
      {.node_rank = 1, .attempt = 0, .pod_uid = lost.uid, .time = {}, .reason = "", .message = ""}};
  remove(lost, replacing);
  EXPECT_TRUE(names().empty());
  remove(lost, trimmed);
  ASSERT_EQ(names().size(), 1U);
  replacing.status.replacements[0].pod_uid = "another";
  removed_.forget_recorded(key_, &replacing);
  EXPECT_EQ(names().size(), 1U);
  replacing.status.replacements[0].pod_uid = lost.uid;
  removed_.forget_recorded(key_, &replacing);
  EXPECT_TRUE(names().empty());
}

// The API server first marks a pod as being deleted, and this is how it may be seen next.
TEST_F(RemovedPodsTest, PodDoneBeforeDeletionRemainsDone) {
  const Job running = JobBuilder().phase(Phase::kRunning);
  const Pod done = PodBuilder("bert", 0, 1).ended(0);
  remove(done, running);
  remove(done, running);
  std::vector<Pod> pods = {PodBuilder("bert", 0, 1).ended(0).deleting()};
  ASSERT_EQ(pods.at(0).uid, done.uid);
  removed_.append_to(key_, pods);
  ASSERT_EQ(pods.size(), 1U);
  EXPECT_EQ(pods.at(0), done);
}

TEST_F(RemovedPodsTest, NewPodOfSameNameTakesPrecedence) {
  remove(PodBuilder("bert", 0, 1).ended(0), JobBuilder().phase(Phase::kPending));
  EXPECT_EQ(names({PodBuilder("bert", 0, 1).uid("another")}), std::vector<std::string>{"bert-0-1"});
}

}  // namespace
}  // namespace oarlock::test
