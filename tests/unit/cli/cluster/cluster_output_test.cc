#include "cli/cluster/output.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "cli/cluster/job_view.h"
#include "cli/cluster/wait_for_phase.h"

namespace oarlock::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

SystemTime time_of(const std::string& text) {
  SystemTime time;
  EXPECT_TRUE(from_rfc3339(text, time)) << text;
  return time;
}
const SystemTime kNow = time_of("2026-11-23T07:00:00Z");

TEST(Output, FormatsDurations) {
  EXPECT_EQ(duration_text(seconds(-5)), "0s");
  EXPECT_EQ(duration_text(seconds(59)), "59s");
  EXPECT_EQ(duration_text(seconds(190)), "3m10s");
  EXPECT_EQ(duration_text(seconds(42 * 60 + 7)), "42m");
  EXPECT_EQ(duration_text(seconds(5 * 3600 + 20 * 60)), "5h20m");
  EXPECT_EQ(duration_text(seconds(3 * 86400 + 4 * 3600)), "3d4h");
  EXPECT_EQ(duration_text(seconds(40 * 86400)), "40d");
}

TEST(Output, ParsesDurations) {
  EXPECT_EQ(parse_duration("90"), milliseconds(90'000));
  EXPECT_EQ(parse_duration("500ms"), milliseconds(500));
  EXPECT_EQ(parse_duration("1h30m"), milliseconds(5'400'000));
  EXPECT_EQ(parse_duration("0"), milliseconds(0));
  for (const char* text : {"", "-1", "1x", "h", "1.5h", "99999999999999999999", "9223372036854775807h", " 1"})
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
}

TEST(Output, FormatsNumbers) {
  EXPECT_EQ(number_text(0.00123456), "0.001235");
  EXPECT_EQ(number_text(12345.6), "12346");
  EXPECT_EQ(progress_bar(0.5, 10), "[#####-----]");
  EXPECT_EQ(progress_bar(7, 4), "[####]");
  EXPECT_EQ(progress_bar(std::nan(""), 4), "[----]");
}

TEST(Output, AlignsColumnsByCharacters) {
  Table table({"NAME", "STATE"});
  table.add({"größe", "Running"});
  table.add({"a", ""});
  EXPECT_EQ(table.to_text({}), "NAME    STATE\ngröße   Running\na       -\n");
}

TEST(Output, CutsTableToTerminal) {
  Table table({"NAME", "MESSAGE"});
  table.add({"a", "a long message"});
  EXPECT_EQ(table.to_text({.colors = false, .width = 12}), "NAME   MESS…\na      a lo…\n");
  EXPECT_EQ(fit("abc", 3), "abc");
  EXPECT_EQ(fit("abcd", 3), "ab…");
}

TEST(Output, ColorsOnlyWhereRequested) {
  Table table({"STATE"});
  table.add({Cell("Failed", Color::kRed)});
  EXPECT_EQ(table.to_text({}), "STATE\nFailed\n");
  EXPECT_THAT(table.to_text({.colors = true, .width = 80}), HasSubstr("\x1b[31mFailed\x1b[0m"));
}

TEST(Output, TextsOfClusterCannotControlTerminal) {
  Table table({"NAME"});
  table.add({"a\x1b[2J\nb"});
  EXPECT_EQ(table.to_text({}), "NAME\na\\x1b[2J\\nb\n");
  const std::string json = document_text({{"m", "\xE2\x80\xAE"}}, OutputFormat::kJson);
  EXPECT_THAT(json, AllOf(HasSubstr("\\u202e"), Not(HasSubstr("\xE2\x80\xAE"))));
  EXPECT_THAT(document_text({{"m", "\x1b"}}, OutputFormat::kYaml), Not(HasSubstr("\x1b")));
}

TEST(Output, ParsesTheNamesOfFormats) {
  EXPECT_EQ(parse_output_format("wide"), OutputFormat::kWide);
  EXPECT_EQ(parse_output_format("xml"), std::nullopt);
}

// ---- Jobs ----------------------------------------------------------------------------------------------------------

api::TrainingJob running_job() {
  return api::read_training_job(
      {{"apiVersion", kApiVersion},
       {"kind", kKind},
       {"metadata",
        {{"name", "bert"}, {"namespace", "team"}, {"uid", "u"}, {"creationTimestamp", "2026-11-23T06:00:00Z"}}},
       {"spec", {{"nodes", 2}, {"processesPerNode", 4}, {"image", "i"}, {"checkpoints", {{"size", "10Gi"}}}}},
       {"status",
        {{"phase", "Running"},
         {"attempt", 1},
         {"attemptStartTime", "2026-11-23T06:30:00Z"},
         {"nodes", {{"desired", 2}, {"ready", 2}, {"summary", "2/2"}}},
         {"restarts",
          {{"total", 1}, {"charged", 1}, {"reasons", Json::array({{{"reason", "OOMKilled"}, {"count", 1}}})}}},
         {"progress",
          {{"step", 4200},
           {"targetSteps", 10000},
           {"checkpointStep", 4000},
           {"completed", "42%"},
           {"loss", 1.25},
           {"samplesPerSecond", 512.0},
           {"eta", "2026-11-23T07:10:00Z"}}},
         {"attempts",
          Json::array(
              {{{"attempt", 0}, {"endTime", "2026-11-23T06:29:50Z"}, {"reason", "OOMKilled"}, {"message", "m"}}})},
         {"conditions", Json::array({{{"type", "Running"},
                                      {"status", "True"},
                                      {"reason", "PodsRunning"},
                                      {"message", "all pods have started"},
                                      {"lastTransitionTime", "2026-11-23T06:31:00Z"}}})}}}});
}

TEST(JobView, ListsStateAndProgress) {
  EXPECT_EQ(job_table({running_job()}, false, false, kNow).to_text({}),
            "NAME   STATE     READY   STEP   PROGRESS   RESTARTS   AGE\n"
            "bert   Running   2/2     4200   42%        1          1h\n");
  EXPECT_EQ(
      job_table({running_job()}, true, true, kNow).to_text({}),
      "NAMESPACE   NAME   STATE     READY   STEP   PROGRESS   RESTARTS   AGE   LOSS   SPEED   ETA   RANKS   QUEUE   "
      "REASON\n"
      "team        bert   Running   2/2     4200   42%        1          1h    1.25   512/s   10m   2x4     -       "
      "PodsRunning\n");
}

TEST(JobView, ShowsStatusOfRunningJob) {
  const StatusInput input{.job = running_job(),
                          .pods = {},
                          .events = {{.kind = kKind,
                                      .name = "bert",
                                      .type = "Warning",
                                      .reason = "Restarting",
                                      .message = "m",
                                      .count = 1,
                                      .last_time = kNow - seconds(60)}},
                          .notes = {"cannot list pods"}};
  const std::string text = status_text(input, false, {}, kNow);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("Name:        bert (namespace team)\n"), HasSubstr("State:       Running for 29m: PodsRunning\n"),
            HasSubstr("Nodes:       2/2 ready; 2 x 4 = 8 ranks\n"),
            HasSubstr("[##########--------------] 42%  step 4200/10000  loss 1.25  512 samples/s  ETA 10m\n"),
            HasSubstr("Checkpoint:  step 4000 in claim bert-checkpoints, directory /checkpoints/bert\n"),
            HasSubstr("Attempt:     1, started 30m ago\n"),
            HasSubstr("Restarts:    1 (1 of 3 that count are used): 1 OOMKilled\n")));
  EXPECT_THAT(text, AllOf(HasSubstr("1m    Warning   Restarting   1       m\n"), HasSubstr("Note: cannot list pods\n"),
                          HasSubstr("Next: oarlock why -n team bert\n")));
  StatusInput replaced = input;
  replaced.job.status.restarts = {.after_progress = api::AfterProgress{.count = 2}};
  EXPECT_THAT(
      status_text(replaced, false, {}, kNow),
      HasSubstr("Restarts:    0 (0 of 3 that count are used; 2 restarts and replaced pods after progress, 30 in "
                "all are allowed)\n"))
      << "two pods were replaced after progress";
}

TEST(JobView, ShowsBadNodesUntilTheyAreNotAvoidedAnyMore) {
  StatusInput input;
  input.job = running_job();
  input.job.status.bad_nodes = {{.name = "gpu-1", .failures = 9, .last_time = kNow - seconds(86'400), .reason = "X"},
                                {.name = "gpu-7",
                                 .failures = 2,
                                 .last_time = kNow - seconds(1800),
                                 .reason = "DeviceFailed",
                                 .avoidance = api::NodeAvoidance::kRequired},
                                {.name = "gpu-8",
                                 .failures = 1,
                                 .last_time = kNow - seconds(60),
                                 .reason = "PodFailed",
                                 .avoidance = api::NodeAvoidance::kNone}};
  EXPECT_THAT(status_text(input, false, {}, kNow),
              AllOf(HasSubstr("Bad nodes:   gpu-7: pods require other nodes for 23h30m more; 2 failures, the last one "
                              "30m ago: DeviceFailed\n"
                              "             gpu-8: not avoided, because pods could not be placed "
                              "otherwise; 1 failure, the last one 1m ago: PodFailed\n"),
                    Not(HasSubstr("gpu-1"))));
}

TEST(JobView, ShowsNodesThatAreAboutToBeRemoved) {
  StatusInput input;
  input.job = running_job();
  EXPECT_THAT(status_text(input, false, {}, kNow), Not(HasSubstr("Disruption:")));
  input.job.status.disruption = {
      {.nodes = {"gpu-7", "gpu-8"}, .reason = "gpu-7 (cordoned)", .request_time = kNow - seconds(5)}};
  EXPECT_THAT(
      status_text(input, false, {}, kNow),
      HasSubstr("Disruption:  node gpu-7 (cordoned) and 1 other are about to be drained or removed; a checkpoint was "
                "requested 5s ago\n"));
}

TEST(JobView, ShowsUsageWithLargestClassFirst) {
  api::TrainingJob job = running_job();
  EXPECT_EQ(usage_text(job.status), "");
  api::Usage& usage = job.status.usage.emplace();
  usage.allocated = 36'000'000;
  usage.classes[UsageClass::kStarting] = 900'000;
  usage.classes[UsageClass::kProductive] = 35'100'000;
  EXPECT_EQ(usage_text(job.status), "10 accelerator-hours: productive 97.5%, starting 2.5%");
  usage.queued = 3'600'000;
  EXPECT_EQ(usage_text(job.status),
            "10 accelerator-hours: productive 97.5%, starting 2.5%; ETTR 88.6% with 1 hours queued");
  EXPECT_THAT(status_text({.job = job, .pods = {}, .events = {}, .notes = {}}, false, {}, kNow),
              HasSubstr("Usage:       10 accelerator-hours: productive"));
}

TEST(JobView, ShowsStagesOfTheStart) {
  api::TrainingJob job = running_job();
  EXPECT_EQ(startup_text(job.status), "");
  job.status.startup = api::Startup{.attempt = job.status.attempt, .scheduled = 4, .started = 35, .first_report = 70};
  EXPECT_EQ(startup_text(job.status), "nodes after 4s, containers 35s, first report 1m10s");
  job.status.startup->attempt = job.status.attempt - 1;
  EXPECT_EQ(startup_text(job.status), "") << "of an earlier attempt";
}

TEST(JobView, ShowsQueueAndItsReason) {
  api::TrainingJob job = running_job();
  EXPECT_EQ(queue_line(job.status, kNow), "");
  api::QueueStatus& queue = job.status.queue.emplace();
  queue = {.name = "team-a",
           .cluster_queue = "gpus",
           .flavors = {"h100", "cpu"},
           .nodes = 2,
           .since = time_of("2026-11-23T06:48:00Z")};
  EXPECT_EQ(queue_line(job.status, kNow),
            "team-a, admitted 12m ago by ClusterQueue gpus for 2 nodes with flavors h100, cpu");
  EXPECT_THAT(status_text({.job = job, .pods = {}, .events = {}, .notes = {}}, false, {}, kNow),
              HasSubstr("Queue:       team-a, admitted 12m ago by ClusterQueue gpus"));
  EXPECT_THAT(job_table({job}, true, false, kNow).to_text({}), HasSubstr("team-a   PodsRunning"));

  queue = {.name = "team-a", .cluster_queue = "", .flavors = {}, .nodes = {}, .since = queue.since};
  job.status.phase = api::Phase::kPending;
  job.status.conditions = {{.type = "Pending",
                            .status = true,
                            .reason = "Queued",
                            .message = "queue team-a: Pending: couldn't assign flavors to pod set nodes"}};
  EXPECT_EQ(queue_text(job.status, kNow), "team-a, waiting for 12m");
  EXPECT_THAT(status_text({.job = job, .pods = {}, .events = {}, .notes = {}, .queue_position = 3}, false, {}, kNow),
              HasSubstr("Queue:       team-a, waiting for 12m at position 3 of the ClusterQueue\n"));
  EXPECT_EQ(queue_line(job.status, kNow), "team-a, waiting for 12m: Pending: couldn't assign flavors to pod set nodes");
}

TEST(JobView, ShowsGangAndTopology) {
  const auto pod = [](int attempt, int node_rank, const std::string& node) {
    const auto view = pod_view(
        {{"metadata",
          {{"name", "p"},
           {"labels", {{kLabelAttempt, std::to_string(attempt)}, {kLabelNodeRank, std::to_string(node_rank)}}}}},
         {"spec", {{"nodeName", node}, {"schedulingGroup", {{"podGroupName", fmt::format("bert-{}", attempt)}}}}}});
    EXPECT_TRUE(view);
    return view.value_or(PodView());
  };
  StatusInput input{.job = running_job(), .pods = {}, .events = {}, .notes = {}};
  EXPECT_THAT(status_text(input, false, {}, kNow), AllOf(Not(HasSubstr("Gang:")), Not(HasSubstr("Topology:"))));
  input.pods = {pod(0, 0, "n1"), pod(1, 0, "n1"), pod(1, 1, "")};
  input.topology = "required domain of rack: r7";
  EXPECT_THAT(status_text(input, false, {}, kNow),
              HasSubstr("Gang:        PodGroup bert-1 of scheduling.k8s.io: 1 of 2 pods have nodes\n"
                        "Topology:    required domain of rack: r7\n"));
}

TEST(JobView, ShowsFinalizersThatHoldADeletion) {
  StatusInput input{.job = running_job(), .pods = {}, .events = {}, .notes = {}, .finalizers = "example.com/billing"};
  EXPECT_THAT(status_text(input, false, {}, kNow), Not(HasSubstr("Deletion:")));
  input.job.metadata.deletion_timestamp = kNow;
  EXPECT_THAT(status_text(input, false, {}, kNow),
              HasSubstr("Deletion:    requested; held by finalizers: example.com/billing\n"));
}

TEST(JobView, ShowsRestartsThatKeptThePods) {
  api::TrainingJob job = running_job();
  EXPECT_THAT(status_text({.job = job, .pods = {}, .events = {}, .notes = {}}, false, {}, kNow),
              AllOf(Not(HasSubstr("In pods:")), Not(HasSubstr("Recoveries:"))));
  job.status.in_pod_restarts = api::InPodRestarts{
      .total = 2, .seconds = 3.25, .last_rank = 5, .last_reason = "rank 5\x1b[2J ended", .last_time = {}};
  job.status.recoveries = api::Recoveries{.total = 3,
                                          .seconds = 1.5,
                                          .last_ranks = "0,3",
                                          .last_reason = "the pod was deleted",
                                          .last_time = {},
                                          .pods = 2,
                                          .charged = 1};
  const std::string text = status_text({.job = job, .pods = {}, .events = {}, .notes = {}}, false, {}, kNow);
  EXPECT_THAT(text, HasSubstr("In pods:     2 of all processes in their pods, 3.25 s in all; the last one: rank 5"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("Recoveries:  3 without a restart and without a lost step, 1.5 s in all; the last one of "
                              "ranks 0,3: the pod was deleted; 2 replaced pods, of which 1 count as restarts\n"));
}

TEST(JobView, ShowsJobWithoutStatus) {
  const api::TrainingJob job =
      api::read_training_job({{"metadata", {{"name", "new"}, {"namespace", "team"}}}, {"spec", {{"image", "i"}}}});
  EXPECT_EQ(job_table({job}, false, false, kNow).to_text({}),
            "NAME   STATE   READY   STEP   PROGRESS   RESTARTS   AGE\n"
            "new    New     -       -      -          0          -\n");
  EXPECT_THAT(status_text({.job = job, .pods = {}, .events = {}, .notes = {}}, true, {}, kNow),
              HasSubstr("State:       New\n"));
}

// ---- Waiting -------------------------------------------------------------------------------------------------------

TEST(Wait, JudgesEveryPhase) {
  using api::Phase;
  const auto judge = [](WaitGoal goal, Phase phase) {
    api::Status status;
    status.phase = phase;
    return judge_wait(goal, status);
  };
  for (const Phase phase : {Phase::kNone, Phase::kPending, Phase::kRestarting}) {
    for (const WaitGoal goal :
         {WaitGoal::kRunning, WaitGoal::kComplete, WaitGoal::kFailed, WaitGoal::kSuspended, WaitGoal::kDeleted})
      EXPECT_EQ(judge(goal, phase), WaitOutcome::kContinue) << to_string(goal) << " in " << api::to_string(phase);
  }
  EXPECT_EQ(judge(WaitGoal::kRunning, Phase::kStalled), WaitOutcome::kReached);
  EXPECT_EQ(judge(WaitGoal::kRunning, Phase::kComplete), WaitOutcome::kReached);
  EXPECT_EQ(judge(WaitGoal::kRunning, Phase::kFailed), WaitOutcome::kMissed);
  EXPECT_EQ(judge(WaitGoal::kComplete, Phase::kFailed), WaitOutcome::kMissed);
  EXPECT_EQ(judge(WaitGoal::kFailed, Phase::kComplete), WaitOutcome::kMissed);
  EXPECT_EQ(judge(WaitGoal::kSuspended, Phase::kSuspended), WaitOutcome::kReached);
  EXPECT_EQ(judge(WaitGoal::kSuspended, Phase::kComplete), WaitOutcome::kMissed);
  EXPECT_EQ(judge(WaitGoal::kDeleted, Phase::kComplete), WaitOutcome::kContinue);
  EXPECT_EQ(parse_wait_goal("complete"), WaitGoal::kComplete);
  EXPECT_EQ(parse_wait_goal("Complete"), std::nullopt);
}

}  // namespace
}  // namespace oarlock::cli
