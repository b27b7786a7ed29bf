#include "cli/cluster/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/contract.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

using Cause = DiagnosedCause;

// {} is the place of the subject.
std::string_view sentence_pattern(Cause cause) {
  switch (cause) {
    case Cause::kNone:
      return "no failure is known";
    case Cause::kOutOfMemory:
      return "{} ran out of memory";
    case Cause::kDeviceOutOfMemory:
      return "{} ran out of device memory";
    case Cause::kDiskFull:
      return "the disk of {} is full";
    case Cause::kIoError:
      return "{} could not read or write a file";
    case Cause::kEvicted:
      return "{} was evicted from its node";
    case Cause::kPreempted:
      return "{} was preempted by a pod of higher priority";
    case Cause::kNodeLost:
      return "the node of {} was lost";
    case Cause::kRejected:
      return "the node of {} did not admit its pod";
    case Cause::kPodDeleted:
      return "the pod of {} was deleted";
    case Cause::kTerminated:
      return "{} was stopped by a signal from outside";
    case Cause::kImagePull:
      return "the image of {} cannot be pulled";
    case Cause::kContainerStart:
      return "the container of {} cannot be started";
    case Cause::kInitContainer:
      return "an init container of {} failed";
    case Cause::kVolume:
      return "a volume of {} cannot be mounted";
    case Cause::kUnschedulable:
      return "no node can run {}";
    case Cause::kQuota:
      return "the quota of the namespace does not allow the pods";
    case Cause::kQueued:
      return "its queue has not admitted it";
    case Cause::kQueueUnavailable:
      return "the operator cannot read the Workloads of Kueue";
    case Cause::kQueueEvicted:
      return "its queue did not admit it any more";
    case Cause::kPodRefused:
      return "the API server refuses the pods";
    case Cause::kTemplateInvalid:
      return "spec.template is invalid";
    case Cause::kSpecInvalid:
      return "the job cannot be run as it is";
    case Cause::kNameTaken:
      return "objects of another owner have the names that the job needs";
    case Cause::kConfigInvalid:
      return "{} was started with an invalid configuration or command line";
    case Cause::kInputMissing:
      return "{} could not use one of its input files";
    case Cause::kMasterUnreachable:
      return "{} could not reach the rendezvous at MASTER_ADDR, or not all ranks arrived there";
    case Cause::kHang:
      return "{} made no progress: a rank hangs or waits for another one";
    case Cause::kNonFinite:
      return "the loss or the gradients of {} are not finite";
    case Cause::kCheckpointUnreadable:
      return "{} found a checkpoint that it can neither read nor may replace";
    case Cause::kDeviceFailed:
      return "a GPU of {}, its driver or its link failed";
    case Cause::kDeadline:
      return "the job was active for longer than activeDeadlineSeconds";
    case Cause::kPeerLost:
      return "ranks lost the connection to a peer, and no pod reports why that peer ended";
    case Cause::kSignal:
      return "{} was ended by a signal";
    case Cause::kSoftware:
      return "{} reported a bug in the program or in a kernel";
    case Cause::kExit:
      return "{} failed with an exit code that Oarlock does not define";
    case Cause::kSuspended:
      return "the job is suspended (spec.suspend)";
    case Cause::kNotManaged:
      return "no operator has seen the job";
  }
  return "";
}

std::string signal_text(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("signal {} (SIG{})", number, name);
}

}  // namespace

std::string cause_sentence(DiagnosedCause cause, const std::string& subject) {
  std::string text(sentence_pattern(cause));
  if (const size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, subject);
  return text;
}

std::vector<std::string> remedies_for(DiagnosedCause cause, const api::Metadata& job, const std::string& pod_name,
                                      const std::string& node_name) {
  const std::string node = node_name.empty() ? "NODE" : node_name;
  const std::string pod = pod_name.empty() ? "POD" : pod_name;
  switch (cause) {
    case Cause::kNone:
      return {};
    case Cause::kOutOfMemory:
      return {"raise limits.memory of spec.resourcesPerNode (or of the container 'trainer')",
              "use less host memory per rank: a smaller batch.size, fewer loader.threads, fewer processesPerNode"};
    case Cause::kDeviceOutOfMemory:
      return {"lower batch.size, and raise gradient.accumulation_steps to keep the effective batch",
              "use mixed precision (amp.enabled=true) or activation checkpointing, or GPUs with more memory"};
    case Cause::kDiskFull:
      return {"free space on the volume that the message names, or enlarge it",
              "for checkpoints: raise spec.checkpoints.size, or keep fewer with checkpoint.keep",
              "for the node's own disk: write caches to a volume, or raise limits.ephemeral-storage"};
    case Cause::kIoError:
      return {"check the volume and the permissions of the path in the message"};
    case Cause::kEvicted:
      return {"set requests equal to limits in spec.resourcesPerNode, so that the kubelet evicts other pods first",
              "after a drain or a taint no action is needed: the group resumes from its newest checkpoint"};
    case Cause::kPreempted:
      return {"give the job a higher spec.template.spec.priorityClassName, or wait until there is capacity",
              "such restarts are free, so that the job resumes from its newest checkpoint by itself"};
    case Cause::kNodeLost:
      return {fmt::format("kubectl describe node {}", node),
              "shorter tolerations for node.kubernetes.io/unreachable in the template replace the pod earlier"};
    case Cause::kRejected:
      return {fmt::format("kubectl describe node {}", node),
              "such restarts are free; if one node rejects the pods again and again, cordon it"};
    case Cause::kPodDeleted:
      return {"find out who deleted it: the audit log of the API server names the user",
              "to stop a job, use: oarlock suspend " + job.name};
    case Cause::kTerminated:
      return {
          "find out what stopped it: a drain, a deletion, an autoscaler, or a time limit in the container's command",
          "the state was saved if the exit code is 75; the next attempt resumes there"};
    case Cause::kImagePull:
      return {"check the name and the tag of the image, and that the nodes reach the registry",
              "for a private registry: set imagePullSecrets in spec.template.spec"};
    case Cause::kContainerStart:
      return {
          "check the command and its architecture in the image, and the ConfigMaps and Secrets that the container "
          "refers to",
          fmt::format("kubectl describe pod -n {} {}", job.namespace_name, pod)};
    case Cause::kInitContainer:
      return {fmt::format("kubectl logs -n {} {} -c INIT_CONTAINER", job.namespace_name, pod)};
    case Cause::kVolume:
      return {
          "check that the PersistentVolumeClaim, Secret or ConfigMap exists and that its storage class supports the "
          "nodes",
          fmt::format("kubectl describe pod -n {} {}", job.namespace_name, pod)};
    case Cause::kUnschedulable:
      return {"compare spec.resourcesPerNode with the capacity of the nodes: kubectl describe nodes",
              "check the node selector, affinity and tolerations of the template, or add nodes"};
    case Cause::kQuota:
      return {fmt::format("kubectl describe resourcequota -n {}", job.namespace_name),
              "request less, wait for other jobs of the namespace to finish, or have the quota raised; a quota on "
              "count/pods counts ended pods of other jobs, too: delete those jobs, or limit pods instead"};
    case Cause::kQueued:
      return {fmt::format("kubectl describe workloads.kueue.x-k8s.io -n {} -l {}={}", job.namespace_name, kLabelJobName,
                          job.name),
              fmt::format("wait for other jobs of the queue, request less, or move the job to another queue: label {}",
                          kLabelQueue)};
    case Cause::kQueueUnavailable:
      return {"install Kueue, or let the operator read its Workloads: queues.kueue of the chart",
              fmt::format("to run it without quota: oarlock suspend {0}, remove the label {1}, oarlock resume {0}",
                          job.name, kLabelQueue)};
    case Cause::kQueueEvicted:
      return {
          "no action is needed: such restarts are free, and the job resumes from its newest checkpoint when its queue "
          "admits it again",
          fmt::format("a higher priority protects it from preemption: label {}", kLabelPriorityClass)};
    case Cause::kPodRefused:
      return {"change the template so that it satisfies the admission policy that the message names"};
    case Cause::kTemplateInvalid:
      return {"correct the field that the message names; oarlock validate -f FILE finds such errors before"};
    case Cause::kSpecInvalid:
      return {"correct the field that the message names; oarlock validate -f FILE finds such errors before"};
    case Cause::kNameTaken:
      return {"delete the objects that the message names, or give the job another name"};
    case Cause::kConfigInvalid:
      return {
          "correct the field or option that the message names; oarlock validate -f FILE finds most such errors before"};
    case Cause::kInputMissing:
      return {
          "check that the path in the message exists in the container and is readable: volumes, claims, permissions"};
    case Cause::kMasterUnreachable:
      return {
          "check that the pod of rank 0 started, and that no NetworkPolicy or service mesh blocks the ports of the "
          "ranks",
          "raise distributed.rendezvous_timeout_seconds if pods start far apart, for example while images are pulled"};
    case Cause::kHang:
      return {"read the last lines of all ranks: the one that is behind shows its current activity",
              "check the network (NCCL_DEBUG=INFO) and the data of the rank that is behind",
              "raise distributed.timeout_seconds only if a step or an evaluation really takes that long"};
    case Cause::kNonFinite:
      return {"lower the learning rate or warm up longer, and clip gradients",
              "with oarlock-trainer, nonfinite.loss=skip and nonfinite.gradient=skip omit single steps, and the log "
              "names the batches: look for invalid samples in them"};
    case Cause::kCheckpointUnreadable:
      return {"read docs/checkpoint-format.md#when-a-checkpoint-cannot-be-read before anything is deleted"};
    case Cause::kDeviceFailed:
      return {fmt::format("kubectl cordon {}, then look for Xid lines in its kernel log", node),
              "the rule {action: RestartFree, onExitCodes: {operator: In, values: [79]}} keeps such failures out of "
              "maxRestarts"};
    case Cause::kDeadline:
      return {
          "raise spec.activeDeadlineSeconds; a new job resumes from the checkpoints if it uses the same claim and "
          "name"};
    case Cause::kPeerLost:
      return {"read the logs of all ranks of that attempt; the peer's pod was removed before it could report"};
    case Cause::kSignal:
      return {"SIGKILL without OOMKilled: check the memory of the node and of child processes",
              "SIGSEGV, SIGBUS or SIGABRT: a native library crashed; the log has its last lines. SIGBUS: /dev/shm may "
              "be too small"};
    case Cause::kSoftware:
      return {"report it with the log; a device-side assert needs CUDA_LAUNCH_BLOCKING=1 to name its kernel"};
    case Cause::kExit:
      return {"the exit code is that of the container's command: its log has the reason"};
    case Cause::kSuspended:
      return {"oarlock resume " + job.name};
    case Cause::kNotManaged:
      return {
          "check that the operator runs and watches this namespace: kubectl get pods -A -l "
          "app.kubernetes.io/name=oarlock"};
  }
  return {};
}

std::string exit_code_text(int code) {
  constexpr std::pair<int, std::string_view> kMeanings[] = {
      {0, "success"},
      {1, "a failure that no other code describes"},
      {64, "the command line is wrong"},
      {65, "an input file is damaged or has the wrong content, or the loss is not finite"},
      {66, "an input file or a command does not exist or cannot be read"},
      {68, "a host name does not exist"},
      {69, "a required service, device or program is not available"},
      {70, "a bug in the program or in a kernel"},
      {71, "a system call failed: no process, no memory, or /dev/shm is too small"},
      {72, "a checkpoint exists that the run can neither read nor may replace"},
      {73, "an output file or directory cannot be created"},
      {74, "reading or writing failed"},
      {75, "interrupted after saving a checkpoint, or a condition that a retry may resolve"},
      {76, "another rank was lost"},
      {77, "permission denied"},
      {78, "the configuration or the environment is wrong"},
      {79, "the GPU, its link or its driver failed"},
      {126, "the command of the container may not be executed"},
      {127, "the command of the container does not exist"},
  };
  for (const auto& [known, meaning] : kMeanings) {
    if (known == code) return fmt::format("{}: {}", code, meaning);
  }
  if (code > 128 && code < 128 + 65) return fmt::format("{}: ended by {}", code, signal_text(code - 128));
  return fmt::format("{}: defined by the command of the container", code);
}

// ---- The output of `oarlock why` ---------------------------------------------------------------------------------

std::string diagnosis_text(const Diagnosis& found, const Style& style, SystemTime now) {
  std::string out = style.paint(Color::kBold, printable(found.headline)) + "\n";
  const auto add = [&](std::string_view label, const std::string& text) {
    if (!text.empty()) out += fmt::format("  {:<9} {}\n", label, printable(text));
  };
  const auto add_all = [&](std::string_view label, const std::vector<std::string>& lines) {
    for (size_t i = 0; i < lines.size(); ++i) add(i == 0 ? label : "", lines[i]);
  };
  if (found.cause != DiagnosedCause::kNone) add("cause", std::string(to_string(found.cause)));
  std::vector<std::string> place;
  if (found.rank) place.push_back(fmt::format("rank {}", *found.rank));
  if (!found.pod.empty()) place.push_back("pod " + found.pod);
  if (!found.node.empty()) place.push_back("node " + found.node);
  if (found.node_rank && !found.rank) place.push_back(fmt::format("node rank {}", *found.node_rank));
  if (found.attempt && found.cause != DiagnosedCause::kNone) place.push_back(fmt::format("attempt {}", *found.attempt));
  add("where", fmt::format("{}", fmt::join(place, ", ")));
  if (found.time) add("when", fmt::format("{} ({} ago)", to_rfc3339(*found.time), age_text(found.time, now)));
  if (!found.explanation.empty()) add("exit code", found.explanation);
  add("message", found.message);
  add_all("evidence", found.evidence);
  add_all("cost", found.cost);
  add_all("before", found.history);
  add_all("try", found.remedies);
  return out;
}

nlohmann::json diagnosis_document(const std::string& job, const Diagnosis& found) {
  nlohmann::json out = {{"job", job},
                        {"cause", std::string(to_string(found.cause))},
                        {"headline", found.headline},
                        {"resolved", found.is_resolved},
                        {"evidence", found.evidence},
                        {"cost", found.cost},
                        {"history", found.history},
                        {"remedies", found.remedies}};
  const auto set_text = [&](const char* key, const std::string& text) {
    if (!text.empty()) out[key] = text;
  };
  set_text("pod", found.pod);
  set_text("node", found.node);
  set_text("explanation", found.explanation);
  set_text("message", found.message);
  if (found.node_rank) out["nodeRank"] = *found.node_rank;
  if (found.rank) out["rank"] = *found.rank;
  if (found.attempt) out["attempt"] = *found.attempt;
  if (found.exit_code) out["exitCode"] = *found.exit_code;
  if (found.time) out["time"] = to_rfc3339(*found.time);
  return out;
}

}  // namespace oarlock::cli
