#include "cli/cluster/cause_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>

#include "common/contract.h"

namespace oarlock::cli {
namespace {

using Cause = DiagnosedCause;

// The place of the subject of a sentence is {subject}. Remedies can have {job}, {namespace}, {pod}, {node}, and the
// keys of labels.
struct CauseText {
  Cause cause;
  std::string_view name;
  std::string_view sentence;
  std::string_view remedies[3];
};

constexpr CauseText kCauses[] = {
    {Cause::kNone, "None", "no failure is known", {}},
    {Cause::kOutOfMemory,
     "OutOfMemory",
     "{subject} ran out of memory",
     {"raise limits.memory of spec.resourcesPerNode (or of the container 'trainer')",
      "use less host memory per rank: a smaller batch.size, fewer loader.threads, fewer processesPerNode"}},
    {Cause::kDeviceOutOfMemory,
     "DeviceOutOfMemory",
     "{subject} ran out of device memory",
     {"lower batch.size, and raise gradient.accumulation_steps to keep the effective batch",
      "use mixed precision (amp.enabled=true) or activation checkpointing, or GPUs with more memory"}},
    {Cause::kDiskFull,
     "DiskFull",
     "the disk of {subject} is full",
     {"free space on the volume that the message names, or enlarge it",
      "for checkpoints: raise spec.checkpoints.size, or keep fewer with checkpoint.keep",
      "for the node's own disk: write caches to a volume, or raise limits.ephemeral-storage"}},
    {Cause::kIoError,
     "IoError",
     "{subject} could not read or write a file",
     {"check the volume and the permissions of the path in the message"}},
    {Cause::kEvicted,
     "Evicted",
     "{subject} was evicted from its node",
     {"set requests equal to limits in spec.resourcesPerNode, so that the kubelet evicts other pods first",
      "after a drain or a taint no action is needed: the group resumes from its newest checkpoint"}},
    {Cause::kPreempted,
     "Preempted",
     "{subject} was preempted by a pod of higher priority",
     {"give the job a higher spec.template.spec.priorityClassName, or wait until there is capacity",
      "such restarts are free, so that the job resumes from its newest checkpoint by itself"}},
    {Cause::kNodeLost,
     "NodeLost",
     "the node of {subject} was lost",
     {"kubectl describe node {node}",
      "shorter tolerations for node.kubernetes.io/unreachable in the template replace the pod earlier"}},
    {Cause::kRejected,
     "PodRejected",
     "the node of {subject} did not admit its pod",
     {"kubectl describe node {node}",
      "such restarts are free; if one node rejects the pods again and again, cordon it"}},
    {Cause::kPodDeleted,
     "PodDeleted",
     "the pod of {subject} was deleted",
     {"find out who deleted it: the audit log of the API server names the user",
      "to stop a job, use: oarlock suspend {job}"}},
    {Cause::kTerminated,
     "Terminated",
     "{subject} was stopped by a signal from outside",
     {"find out what stopped it: a drain, a deletion, an autoscaler, or a time limit in the container's command",
      "the state was saved if the exit code is 75; the next attempt resumes there"}},
    {Cause::kImagePull,
     "ImagePull",
     "the image of {subject} cannot be pulled",
     {"check the name and the tag of the image, and that the nodes reach the registry",
      "for a private registry: set imagePullSecrets in spec.template.spec"}},
    {Cause::kContainerStart,
     "ContainerStart",
     "the container of {subject} cannot be started",
     {"check the command and its architecture in the image, and the ConfigMaps and Secrets that the container refers "
      "to",
      "kubectl describe pod -n {namespace} {pod}"}},
    {Cause::kInitContainer,
     "InitContainer",
     "an init container of {subject} failed",
     {"kubectl logs -n {namespace} {pod} -c INIT_CONTAINER"}},
    {Cause::kVolume,
     "Volume",
     "a volume of {subject} cannot be mounted",
     {"check that the PersistentVolumeClaim, Secret or ConfigMap exists and that its storage class supports the nodes",
      "kubectl describe pod -n {namespace} {pod}"}},
    {Cause::kUnschedulable,
     "Unschedulable",
     "no node can run {subject}",
     {"compare spec.resourcesPerNode with the capacity of the nodes: kubectl describe nodes",
      "check the node selector, affinity and tolerations of the template, or add nodes"}},
    {Cause::kQuota,
     "Quota",
     "the quota of the namespace does not allow the pods",
     {"kubectl describe resourcequota -n {namespace}",
      "request less, wait for other jobs of the namespace to finish, or have the quota raised; a quota on count/pods "
      "counts ended pods of other jobs, too: delete those jobs, or limit pods instead"}},
    {Cause::kQueued,
     "Queued",
     "its queue has not admitted it",
     {"kubectl describe workloads.kueue.x-k8s.io -n {namespace} -l {job_label}={job}",
      "wait for other jobs of the queue, request less, or move the job to another queue: label {queue_label}"}},
    {Cause::kQueueUnavailable,
     "QueueUnavailable",
     "the operator cannot read the Workloads of Kueue",
     {"install Kueue, or let the operator read its Workloads: queues.kueue of the chart",
      "to run it without quota: oarlock suspend {job}, remove the label {queue_label}, oarlock resume {job}"}},
    {Cause::kQueueEvicted,
     "QueueEvicted",
     "its queue did not admit it any more",
     {"no action is needed: such restarts are free, and the job resumes from its newest checkpoint when its queue "
      "admits it again",
      "a higher priority protects it from preemption: label {priority_label}"}},
    {Cause::kProfileMissing,
     "ProfileMissing",
     "its TrainingProfile does not exist, or cannot be read",
     {"kubectl get trainingprofiles -n {namespace}",
      "create the profile; or oarlock suspend {job}, change spec.profile, oarlock resume {job}"}},
    {Cause::kProfileInvalid,
     "ProfileInvalid",
     "it cannot run with its TrainingProfile",
     {"correct the field of the profile that the message names",
      "or oarlock suspend {job}, change the job or spec.profile (\"\": none), oarlock resume {job}"}},
    {Cause::kPodRefused,
     "PodRefused",
     "the API server refuses the pods",
     {"change the template so that it satisfies the admission policy that the message names"}},
    {Cause::kTemplateInvalid,
     "TemplateInvalid",
     "spec.template is invalid",
     {"correct the field that the message names; oarlock validate -f FILE finds such errors before"}},
    {Cause::kSpecInvalid,
     "SpecInvalid",
     "the job cannot be run as it is",
     {"correct the field that the message names; oarlock validate -f FILE finds such errors before"}},
    {Cause::kNameTaken,
     "NameTaken",
     "objects of another owner have the names that the job needs",
     {"delete the objects that the message names, or give the job another name"}},
    {Cause::kConfigInvalid,
     "ConfigInvalid",
     "{subject} was started with an invalid configuration or command line",
     {"correct the field or option that the message names; oarlock validate -f FILE finds most such errors before"}},
    {Cause::kInputMissing,
     "InputMissing",
     "{subject} could not use one of its input files",
     {"check that the path in the message exists in the container and is readable: volumes, claims, permissions"}},
    {Cause::kMasterUnreachable,
     "MasterUnreachable",
     "{subject} could not reach the rendezvous at MASTER_ADDR, or not all ranks arrived there",
     {"check that the pod of rank 0 started, and that no NetworkPolicy or service mesh blocks the ports of the ranks",
      "raise distributed.rendezvous_timeout_seconds if pods start far apart, for example while images are pulled"}},
    {Cause::kHang,
     "Hang",
     "{subject} made no progress: a rank hangs or waits for another one",
     {"read the last lines of all ranks: the one that is behind shows its current activity",
      "check the network (NCCL_DEBUG=INFO) and the data of the rank that is behind",
      "raise distributed.timeout_seconds only if a step or an evaluation really takes that long"}},
    {Cause::kNonFinite,
     "NonFinite",
     "the loss or the gradients of {subject} are not finite",
     {"lower the learning rate or warm up longer, and clip gradients",
      "with oarlock-trainer, nonfinite.loss=skip and nonfinite.gradient=skip omit single steps, and the log names the "
      "batches: look for invalid samples in them"}},
    {Cause::kCheckpointUnreadable,
     "CheckpointUnreadable",
     "{subject} found a checkpoint that it can neither read nor may replace",
     {"read docs/checkpoint-format.md#when-a-checkpoint-cannot-be-read before anything is deleted"}},
    {Cause::kDeviceFailed,
     "DeviceFailed",
     "a GPU of {subject}, its driver or its link failed",
     {"kubectl cordon {node}, then look for Xid lines in its kernel log",
      "the rule {{action: RestartFree, onExitCodes: {{operator: In, values: [79]}}}} keeps such failures out of "
      "maxRestarts"}},
    {Cause::kDeadline,
     "Deadline",
     "the job was active for longer than activeDeadlineSeconds",
     {"raise spec.activeDeadlineSeconds; a new job resumes from the checkpoints if it uses the same claim and name"}},
    {Cause::kPeerLost,
     "PeerLost",
     "ranks lost the connection to a peer, and no pod reports why that peer ended",
     {"read the logs of all ranks of that attempt; the peer's pod was removed before it could report"}},
    {Cause::kSignal,
     "Signal",
     "{subject} was ended by a signal",
     {"SIGKILL without OOMKilled: check the memory of the node and of child processes",
      "SIGSEGV, SIGBUS or SIGABRT: a native library crashed; the log has its last lines. SIGBUS: /dev/shm may be too "
      "small"}},
    {Cause::kSoftware,
     "Software",
     "{subject} reported a bug in the program or in a kernel",
     {"report it with the log; a device-side assert needs CUDA_LAUNCH_BLOCKING=1 to name its kernel"}},
    {Cause::kExit,
     "Exit",
     "{subject} failed with an exit code that Oarlock does not define",
     {"the exit code is that of the container's command: its log has the reason"}},
    {Cause::kSuspended, "Suspended", "the job is suspended (spec.suspend)", {"oarlock resume {job}"}},
    {Cause::kNotManaged,
     "NotManaged",
     "no operator has seen the job",
     {"check that the operator runs and watches this namespace: kubectl get pods -A -l "
      "app.kubernetes.io/name=oarlock"}},
};

static_assert(std::size(kCauses) == static_cast<size_t>(Cause::kNotManaged) + 1);
static_assert(std::ranges::adjacent_find(kCauses, std::ranges::greater_equal{}, &CauseText::cause) ==
              std::end(kCauses));

const CauseText& text_of(Cause cause) { return kCauses[static_cast<size_t>(cause)]; }

}  // namespace

std::string_view to_string(DiagnosedCause cause) { return text_of(cause).name; }

std::string cause_sentence(DiagnosedCause cause, const std::string& subject) {
  return fmt::format(fmt::runtime(text_of(cause).sentence), fmt::arg("subject", subject));
}

std::vector<std::string> remedies_for(DiagnosedCause cause, const api::Metadata& job, const std::string& pod,
                                      const std::string& node) {
  std::vector<std::string> out;
  for (const std::string_view remedy : text_of(cause).remedies) {
    if (remedy.empty()) break;
    out.push_back(fmt::format(fmt::runtime(remedy), fmt::arg("job", job.name),
                              fmt::arg("namespace", job.namespace_name), fmt::arg("pod", pod.empty() ? "POD" : pod),
                              fmt::arg("node", node.empty() ? "NODE" : node), fmt::arg("job_label", kLabelJobName),
                              fmt::arg("queue_label", kLabelQueue), fmt::arg("priority_label", kLabelPriorityClass)));
  }
  return out;
}

}  // namespace oarlock::cli
