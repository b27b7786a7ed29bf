// What `oarlock why` reports about a job with a queue of Kueue, or with a TrainingProfile.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "cli/cluster/cause_text.h"
#include "cli/cluster/diagnosis.h"

namespace oarlock::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kEvicted[] =
    "the queue team-a does not admit the job any more: Preempted: Preempted to accommodate a workload (UID: u) due to "
    "prioritization in the ClusterQueue";
const Json kWaiting = {{"name", "team-a"}, {"since", "2026-11-23T06:48:00Z"}};
const Json kAdmitted = {{"name", "team-a"},
                        {"clusterQueue", "gpus"},
                        {"flavors", {"h100"}},
                        {"nodes", 2},
                        {"since", "2026-11-23T06:48:00Z"}};

Json status_in(const std::string& phase, const std::string& reason, const std::string& message, const Json& queue) {
  return {{"phase", phase},
          {"attempt", 0},
          {"queue", queue},
          {"conditions", Json::array({{{"type", phase},
                                       {"status", "True"},
                                       {"reason", reason},
                                       {"message", message},
                                       {"lastTransitionTime", "2026-11-23T06:30:00Z"}}})}};
}

// Adds the record of attempt 0, which the queue has ended.
Json after_eviction(Json status) {
  status["attempt"] = 1;
  status["attempts"] = Json::array({{{"attempt", 0},
                                     {"startTime", "2026-11-23T06:00:00Z"},
                                     {"endTime", "2026-11-23T06:20:00Z"},
                                     {"reason", "QueueEvicted"},
                                     {"message", kEvicted}}});
  return status;
}

Diagnosis diagnose_status(const Json& status, DiagnosisInput input = {}) {
  input.job = api::read_training_job(
      {{"apiVersion", kApiVersion},
       {"kind", kKind},
       {"metadata",
        {{"name", "bert"}, {"namespace", "team"}, {"uid", "u"}, {"creationTimestamp", "2026-11-23T06:00:00Z"}}},
       {"spec", {{"nodes", 2}, {"image", "i"}}},
       {"status", status}});
  EXPECT_EQ(input.job.report.problem, "");
  EXPECT_TRUE(from_rfc3339("2026-11-23T07:00:00Z", input.now));
  return diagnose(input);
}

TEST(QueueDiagnosis, WaitingJobNamesQueueAndReason) {
  const std::string message = "queue team-a: Pending: couldn't assign flavors to pod set nodes: insufficient quota";
  const Diagnosis found = diagnose_status(status_in("Pending", "Queued", message, kWaiting));
  EXPECT_EQ(to_string(found.cause), "Queued");
  EXPECT_EQ(found.headline, "bert waits: its queue has not admitted it");
  EXPECT_EQ(found.message, message);
  EXPECT_THAT(found.evidence, Contains("queue team-a, waiting for 12m"));
  EXPECT_THAT(found.remedies,
              Contains("kubectl describe workloads.kueue.x-k8s.io -n team -l oarlock.dev/job-name=bert"));
}

TEST(QueueDiagnosis, WaitingJobHasPositionAndGang) {
  DiagnosisInput input;
  input.queue_position = 4;
  const std::string message = "queue team-a: Pending: insufficient quota";
  const Diagnosis queued = diagnose_status(status_in("Pending", "Queued", message, kWaiting), input);
  EXPECT_THAT(queued.evidence, Contains("queue team-a, waiting for 12m at position 4 of the ClusterQueue"));
  input = {};
  input.pods.resize(2);
  for (PodView& pod : input.pods) pod.gang = "PodGroup bert-0 of scheduling.k8s.io";
  const Diagnosis placed = diagnose_status(status_in("Pending", "PodsStarting", "0 of 2", kAdmitted), input);
  EXPECT_THAT(placed.evidence, Contains("PodGroup bert-0 of scheduling.k8s.io: 0 of 2 pods have nodes"));
}

TEST(QueueDiagnosis, UnreadableQueueIsNotAQueueThatIsFull) {
  const std::string message = "queue team-a: the Workloads of Kueue cannot be read: 404 page not found";
  const Diagnosis found = diagnose_status(status_in("Pending", "QueueUnavailable", message, kWaiting));
  EXPECT_EQ(to_string(found.cause), "QueueUnavailable");
  EXPECT_EQ(found.headline, "bert cannot start: the operator cannot read the Workloads of Kueue");
  EXPECT_THAT(found.remedies, Contains(HasSubstr("queues.kueue")));
}

TEST(ProfileDiagnosis, NamesTheProfileThatPreventsAStartOrAResume) {
  const std::pair<std::string, std::string> rows[] = {{"ProfileNotFound", "ProfileMissing"},
                                                      {"InvalidProfile", "ProfileInvalid"}};
  for (const auto& [reason, cause] : rows) {
    const Diagnosis start = diagnose_status(status_in("Pending", reason, "the message", nullptr));
    EXPECT_EQ(to_string(start.cause), cause);
    EXPECT_THAT(start.headline, HasSubstr("bert cannot start: "));
    EXPECT_EQ(start.message, "the message");
    EXPECT_THAT(start.remedies, Contains(HasSubstr("oarlock suspend bert")));
    const Diagnosis resume = diagnose_status(status_in("Suspended", reason, "the message", nullptr));
    EXPECT_EQ(to_string(resume.cause), cause);
    EXPECT_THAT(resume.headline, HasSubstr("bert cannot be resumed: "));
  }
  EXPECT_EQ(to_string(diagnose_status(status_in("Suspended", "Suspended", "m", nullptr)).cause), "Suspended");
}

TEST(QueueDiagnosis, RestartingJobNamesEvictionAndWhatItWaitsFor) {
  const auto diagnose_in = [](const std::string& waits, const Json& queue) {
    const std::string message = std::string("attempt 0: ") + kEvicted + "; " + waits;
    return diagnose_status(after_eviction(status_in("Restarting", "QueueEvicted", message, queue)));
  };
  const Diagnosis waiting = diagnose_in("queue team-a: Pending: insufficient quota", kWaiting);
  EXPECT_EQ(to_string(waiting.cause), "QueueEvicted");
  EXPECT_EQ(waiting.headline, "bert is restarting: its queue did not admit it any more");
  EXPECT_EQ(waiting.message, kEvicted);
  EXPECT_THAT(waiting.evidence, Contains(HasSubstr("attempt 1 waits: Queued: ")));
  EXPECT_THAT(waiting.cost, Contains("the attempt ran for 20m with 2 ranks"));
  EXPECT_THAT(waiting.remedies, Contains(HasSubstr("such restarts are free")));
  const Diagnosis unavailable =
      diagnose_in("queue team-a: the Workloads of Kueue cannot be read: 404 page not found", kAdmitted);
  EXPECT_THAT(unavailable.evidence, Contains(HasSubstr("attempt 1 waits: QueueUnavailable: ")));
  const Diagnosis admitted = diagnose_in("0 of 2 pods have started", kAdmitted);
  EXPECT_THAT(admitted.evidence, Contains(HasSubstr("state of the restart: ")));
}

TEST(QueueDiagnosis, RunningJobNamesAdmissionAndLastEviction) {
  const Json status = status_in("Running", "PodsRunning", "all pods have started", kAdmitted);
  const Diagnosis healthy = diagnose_status(status);
  EXPECT_EQ(to_string(healthy.cause), "None");
  EXPECT_THAT(healthy.evidence,
              Contains("queue team-a, admitted 12m ago by ClusterQueue gpus for 2 nodes with flavors h100"));
  const Diagnosis resumed = diagnose_status(after_eviction(status));
  EXPECT_EQ(resumed.headline, "bert runs again; its last stop: its queue did not admit it any more");
  EXPECT_TRUE(resumed.is_resolved);
}

TEST(QueueDiagnosis, FinishedJobHasNoQueueState) {
  const Diagnosis found = diagnose_status(status_in("Complete", "Succeeded", "all ranks are done", kAdmitted));
  EXPECT_TRUE(found.evidence.empty());
}

}  // namespace
}  // namespace oarlock::cli
