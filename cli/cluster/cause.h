// The input of `oarlock why`, and the cause of a failure or of a job that does not start. All functions are pure.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.h"
#include "cli/cluster/objects.h"
#include "common/clock.h"

namespace oarlock::cli {

// ---- Input and incidents -----------------------------------------------------------------------------------------

// The objects that the diagnosis reads. Lists may be empty, if the user may not read them.
struct DiagnosisInput {
  api::TrainingJob job;
  std::vector<PodView> pods;      // of the current and the previous attempt
  std::vector<EventView> events;  // about the job and its pods
  std::vector<NodeView> nodes;    // on which those pods ran
  std::string finalizers{};       // holding_finalizers() of the job
  SystemTime now{};
  std::optional<int> queue_position{};  // read_queue_position()
};

// One failure of one attempt, and the objects that describe it. The pointers refer to the DiagnosisInput.
struct Incident {
  api::AttemptRecord record;
  const PodView* pod = nullptr;    // null if the pod no longer exists
  const NodeView* node = nullptr;  // null if the node was not read
  std::string text;                // the messages of the record and of the pod
};

// Returns the failure that a record of status.attempts describes.
Incident make_incident(const DiagnosisInput& input, const api::AttemptRecord& record);

// Returns the root cause of a failure of the current attempt that the operator has not recorded yet, by the operator's
// rules; nullopt if no pod failed, or if a pod is only missing, because this user may not be allowed to read it.
std::optional<Incident> unrecorded_incident(const DiagnosisInput& input);

// Returns the first init container that failed; null if there is none.
const ContainerView* failed_init_container(const PodView& pod);

// Returns the node of this name; null if it was not read.
const NodeView* find_node_named(const DiagnosisInput& input, std::string_view name);

// Returns whether there is an event about the object of this name with one of the reasons.
bool has_event(const DiagnosisInput& input, const std::string& object, std::initializer_list<std::string_view> reasons);
// Returns the newest of these events; null if there is none.
const EventView* find_event(const DiagnosisInput& input, const std::string& object,
                            std::initializer_list<std::string_view> reasons);

// ---- Causes --------------------------------------------------------------------------------------------------------

// The kinds of causes. cause_text.h has their names, sentences and remedies.
enum class DiagnosedCause {
  kNone,               // no failure is known
  kOutOfMemory,        // the kernel killed the container because of its memory limit or the node's memory
  kDeviceOutOfMemory,  // an allocation in the memory of a GPU failed
  kDiskFull,           // a volume, or the ephemeral storage of the node
  kIoError,            // reading or writing failed for another reason
  kEvicted,            // by the kubelet, or by the eviction API (kubectl drain)
  kPreempted,          // by a pod of higher priority
  kNodeLost,           // the node does not respond or no longer exists
  kRejected,           // the kubelet of the node did not admit the pod
  kPodDeleted,         // by a user or a controller
  kTerminated,         // by SIGTERM from outside
  kImagePull,
  kContainerStart,  // the container cannot be created or started
  kInitContainer,   // an init container failed
  kVolume,          // a volume cannot be attached or mounted
  kUnschedulable,
  kQuota,
  kQueued,            // Kueue has not admitted the job
  kQueueUnavailable,  // the operator cannot read Kueue's Workloads
  kQueueEvicted,      // Kueue has withdrawn the admission
  kProfileMissing,    // the TrainingProfile of the job does not exist or cannot be read
  kProfileInvalid,    // the TrainingProfile, or the job that is merged with it, is not valid
  kPodRefused,        // the API server refuses the pods for another reason
  kTemplateInvalid,   // spec.template is not valid
  kSpecInvalid,       // the job cannot be read or run as it is
  kNameTaken,
  kConfigInvalid,      // the trainer's configuration or its command line is not valid
  kInputMissing,       // an input file is missing, damaged or not readable
  kMasterUnreachable,  // the ranks did not find each other
  kHang,               // a rank hangs; the group made no progress
  kNonFinite,          // the loss or a gradient is not finite
  kCheckpointUnreadable,
  kDeviceFailed,  // a GPU, its driver or its link
  kDeadline,      // spec.activeDeadlineSeconds has passed
  kPeerLost,      // only collateral failures are known
  kSignal,        // another signal
  kSoftware,      // a bug that the program reported itself
  kExit,          // another exit code
  kSuspended,     // not a failure: the job is suspended
  kNotManaged,    // no operator has processed the job
};

// Returns the cause of a failure. An external stop of the pod takes precedence over the program's report, and a
// specific exit code over the words of a message.
DiagnosedCause cause_of_incident(const DiagnosisInput& input, const Incident& incident);

// Why a job does not start.
struct StartProblem {
  DiagnosedCause cause = DiagnosedCause::kNone;
  const PodView* pod = nullptr;  // the pod that has the problem; null if it is that of the job
  std::string message;
};

// Returns the problem of the first pending pod of the current attempt that has one, or else that of the condition,
// which may be null. The cause is kNone if no problem is known.
StartProblem find_start_problem(const DiagnosisInput& input, const api::Condition* condition);

}  // namespace oarlock::cli
