// The failures that a job can have, and the first cause that `oarlock why` names.
#include "cli/cluster/diagnosis.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "cli/cluster/cause_text.h"
#include "tests/unit/cli/cluster/diagnosis_objects.h"

namespace oarlock::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct FailureCase {
  std::string name;
  Objects objects;
  DiagnosedCause cause;
  std::string headline;   // a part of it
  std::string remedy;     // a part of one of them
  bool has_place = true;  // the pod and its node are known
  std::optional<int> exit_code{};
};

std::vector<FailureCase> failure_cases() {
  return {
      {.name = "OutOfMemory",
       .objects = {.job = failed_job("OOMKilled", "pod bert-0-1 on gpu-7 ended with exit code 137 (OOMKilled)", 137,
                                     "MaxRestartsExceeded"),
                   .pods = {pod_object(trainer_ended(137, "OOMKilled", ""))}},
       .cause = DiagnosedCause::kOutOfMemory,
       .headline = "bert failed: rank 1 ran out of memory",
       .remedy = "limits.memory",
       .exit_code = 137},
      {.name = "Eviction",
       .objects = {.job = failed_job("Evicted",
                                     "pod bert-0-1 on gpu-7 failed (Evicted): The node was low on resource: memory.",
                                     nullptr, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kEvicted,
       .headline = "rank 1 was evicted",
       .remedy = "requests equal to limits"},
      {.name = "Preemption",
       .objects = {.job = job_object([] {
                     Json status = status_in("Restarting", "PreemptionByScheduler", "pod bert-0-1 was deleted");
                     status["attempt"] = 1;
                     status["attempts"] = Json::array({record(
                         "PreemptionByScheduler", "pod bert-0-1 on gpu-7 was deleted (PreemptionByScheduler)")});
                     return status;
                   }())},
       .cause = DiagnosedCause::kPreempted,
       .headline = "bert is restarting: rank 1 was preempted",
       .remedy = "priorityClassName"},
      {.name = "ImagePull",
       .objects =
           {.job = job_object(status_in("Pending", "ImagePullBackOff", "1 of 2 pods have started")),
            .pods = {pod_object(trainer_waits("ImagePullBackOff", "Back-off pulling image \"registry/x:1\""))},
            .events = {event_about(
                "Pod", "bert-0-1", "Failed",
                "Failed to pull image \"registry/x:1\": manifest for registry/x:1 not found: manifest unknown")}},
       .cause = DiagnosedCause::kImagePull,
       .headline = "bert cannot start: the image of rank 1 cannot be pulled",
       .remedy = "imagePullSecrets"},
      {.name = "FullDisk",
       .objects = {.job = failed_job(
                       "IoError",
                       "pod bert-0-1 on gpu-7 ended with exit code 74: IoError: /ckpt/bert: No space left on device",
                       74),
                   .pods = {pod_object(trainer_ended(
                       74, "Error", rank_message(910, 900, "IoError", "/ckpt/bert: No space left on device")))}},
       .cause = DiagnosedCause::kDiskFull,
       .headline = "the disk of rank 1 is full",
       .remedy = "spec.checkpoints.size",
       .exit_code = 74},
      {.name = "EphemeralStorage",
       .objects = {.job =
                       failed_job("Evicted",
                                  "pod bert-0-1 on gpu-7 failed (Evicted): Pod ephemeral local storage usage exceeds "
                                  "the total limit of containers 10Gi.",
                                  nullptr, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kDiskFull,
       .headline = "the disk of rank 1 is full",
       .remedy = "ephemeral-storage"},
      {.name = "DeviceFailed",
       .objects = {.job = failed_job(
                       "DeviceFailed",
                       "pod bert-0-1 on gpu-7 ended with exit code 79: DeviceFailed: the device or its driver "
                       "failed: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus",
                       79, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kDeviceFailed,
       .headline = "a GPU of rank 1",
       .remedy = "kubectl cordon gpu-7",
       .exit_code = 79},
      {.name = "BadConfig",
       .objects = {.job = failed_job(
                       "ConfigInvalid",
                       "pod bert-0-1 on gpu-7 ended with exit code 78: ConfigInvalid: /etc/oarlock/trainer.json:1:9: "
                       "optimizer.lr: expected a number",
                       78),
                   .pods = {pod_object(trainer_ended(
                       78, "Error", rank_message(0, -1, "ConfigInvalid", "optimizer.lr: expected a number")))}},
       .cause = DiagnosedCause::kConfigInvalid,
       .headline = "invalid configuration",
       .remedy = "oarlock validate",
       .exit_code = 78},
      {.name = "BadConfigOfRendezvous",
       .objects = {.job = failed_job("ConfigInvalid",
                                     "pod bert-0-1 on gpu-7 ended with exit code 78: ConfigInvalid: MASTER_ADDR: "
                                     "rendezvous: disk full",
                                     78)},
       .cause = DiagnosedCause::kConfigInvalid,
       .headline = "invalid configuration",
       .remedy = "oarlock validate",
       .exit_code = 78},
      {.name = "UnreachableMaster",
       .objects = {.job =
                       failed_job("TemporaryFailure",
                                  "pod bert-0-1 on gpu-7 ended with exit code 75: TemporaryFailure: rendezvous: 1 of 2 "
                                  "ranks arrived within 300 s; missing: rank 0",
                                  75, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kMasterUnreachable,
       .headline = "could not reach the rendezvous",
       .remedy = "NetworkPolicy",
       .exit_code = 75},
      {.name = "UnreachableMasterOfPython",
       .objects = {.job = failed_job(
                       "PodFailed",
                       "pod bert-0-1 on gpu-7 ended with exit code 1: torch.distributed.DistNetworkError: The client "
                       "socket has timed out after 300000ms while trying to connect to (bert-0-0.bert, 29500).",
                       1, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kMasterUnreachable,
       .headline = "could not reach the rendezvous",
       .remedy = "pod of rank 0",
       .exit_code = 1},
      {.name = "HangInCollective",
       .objects = {.job = failed_job(
                       "PeerLost",
                       "a rank was lost and no pod reports which one: pod bert-0-1 on gpu-7 ended with exit code 76: "
                       "PeerLost: a collective timed out: another rank hangs or is too slow (rank 0 has not arrived)",
                       nullptr, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kHang,
       .headline = "made no progress",
       .remedy = "the one that is behind"},
      {.name = "Stalled",
       .objects = {.job =
                       job_object(status_in("Stalled", "NoStep", "no step since 06:20:00; rank 0 is in phase train"))},
       .cause = DiagnosedCause::kHang,
       .headline = "bert is stalled",
       .remedy = "oarlock top bert -n team",
       .has_place = false},
      {.name = "NonFinite",
       .objects = {.job = failed_job(
                       "DataInvalid",
                       "pod bert-0-1 on gpu-7 ended with exit code 65: DataInvalid: the loss of step 41 is not finite",
                       65)},
       .cause = DiagnosedCause::kNonFinite,
       .headline = "not finite",
       .remedy = "learning rate",
       .exit_code = 65},
      {.name = "Quota",
       .objects = {.job = job_object(
                       status_in("Pending", "CreateRefused",
                                 "0 of 2 pods have started; the API server refused: pods \"bert-0-0\" is forbidden: "
                                 "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8"))},
       .cause = DiagnosedCause::kQuota,
       .headline = "bert cannot start: the quota",
       .remedy = "kubectl describe resourcequota -n team",
       .has_place = false},
      {.name = "Deadline",
       .objects = {.job = job_object([] {
                     Json status = status_in("Failed", "DeadlineExceeded",
                                             "the job was active for longer than activeDeadlineSeconds (600 s)");
                     status["completionTime"] = "2026-11-23T06:30:00Z";
                     status["progress"] = {{"step", 70}, {"targetSteps", 100}};
                     return status;
                   }())},
       .cause = DiagnosedCause::kDeadline,
       .headline = "longer than activeDeadlineSeconds",
       .remedy = "spec.activeDeadlineSeconds",
       .has_place = false},
      {.name = "NodeLossByTaint",
       .objects = {.job = failed_job("DeletionByTaintManager",
                                     "pod bert-0-1 on gpu-7 was deleted (DeletionByTaintManager)", nullptr,
                                     "MaxRestartsExceeded"),
                   .nodes = {node_object("Unknown")}},
       .cause = DiagnosedCause::kNodeLost,
       .headline = "the node of rank 1 was lost",
       .remedy = "kubectl describe node gpu-7"},
      {.name = "NodeLossByDeletedPod",
       .objects = {.job = failed_job("PodLost", "pod bert-0-1 no longer exists", nullptr, "MaxRestartsExceeded"),
                   .nodes = {node_object("False")}},
       .cause = DiagnosedCause::kNodeLost,
       .headline = "the node of rank 1 was lost",
       .remedy = "kubectl describe node gpu-7"},
      {.name = "DeletedPod",
       .objects = {.job = failed_job("PodDeleted", "pod bert-0-1 on gpu-7 was deleted", nullptr, "MaxRestartsExceeded"),
                   .nodes = {node_object("True")}},
       .cause = DiagnosedCause::kPodDeleted,
       .headline = "the pod of rank 1 was deleted",
       .remedy = "oarlock suspend"},
      {.name = "Sigterm",
       .objects = {.job = failed_job("PodFailed", "pod bert-0-1 on gpu-7 ended with exit code 143 (signal 15)", 143,
                                     "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kTerminated,
       .headline = "rank 1 was stopped by a signal from outside",
       .remedy = "an autoscaler",
       .exit_code = 143},
      {.name = "UnknownExit",
       .objects = {.job = failed_job("PodFailed", "pod bert-0-1 on gpu-7 ended with exit code 3: ValueError: bad split",
                                     3, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kExit,
       .headline = "an exit code that Oarlock does not define",
       .remedy = "its log has the reason",
       .exit_code = 3},
      {.name = "Unschedulable",
       .objects = {.job = job_object(status_in("Pending", "Unschedulable", "0 of 2 pods have started")),
                   .pods = {pod_object(
                       {{"phase", "Pending"},
                        {"conditions",
                         Json::array({{{"type", "PodScheduled"},
                                       {"status", "False"},
                                       {"message", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}}})}})}},
       .cause = DiagnosedCause::kUnschedulable,
       .headline = "no node can run rank 1",
       .remedy = "kubectl describe nodes"},
      {.name = "Volume",
       .objects = {.job = job_object(status_in("Pending", "PodsStarting", "0 of 2 pods have started")),
                   .pods = {pod_object(trainer_waits("ContainerCreating", ""))},
                   .events = {event_about("Pod", "bert-0-1", "FailedMount",
                                          "MountVolume.SetUp failed for volume \"data\": secret \"s\" not found")}},
       .cause = DiagnosedCause::kVolume,
       .headline = "a volume of rank 1 cannot be mounted",
       .remedy = "PersistentVolumeClaim"},
  };
}

class WhyOf : public ::testing::TestWithParam<FailureCase> {};

TEST_P(WhyOf, NamesFirstCause) {
  const FailureCase& one = GetParam();
  const Diagnosis found = diagnose_objects(one.objects);
  EXPECT_EQ(to_string(found.cause), to_string(one.cause));
  EXPECT_THAT(found.headline, HasSubstr(one.headline));
  EXPECT_THAT(found.remedies, Contains(HasSubstr(one.remedy)));
  EXPECT_EQ(found.exit_code, one.exit_code);
  EXPECT_EQ(found.pod, one.has_place ? "bert-0-1" : "");
  EXPECT_EQ(found.node, one.has_place ? "gpu-7" : "");
  EXPECT_THAT(found.message, Not(IsEmpty()));
  const std::string text = diagnosis_text(found, {}, time_of("2026-11-23T07:00:00Z"));
  EXPECT_THAT(text, AllOf(HasSubstr(one.headline), HasSubstr(one.remedy)));
  EXPECT_EQ(diagnosis_document("bert", found)["cause"], to_string(one.cause));
}

INSTANTIATE_TEST_SUITE_P(Diagnosis, WhyOf, ::testing::ValuesIn(failure_cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace oarlock::cli
