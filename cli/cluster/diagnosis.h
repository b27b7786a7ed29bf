// `oarlock why`: the first failure of a job, where it was, what it cost and what to try. A pure function of the
// objects that the API server has.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cluster/objects.h"
#include "cli/cluster/output.h"
#include "operator/api/types.h"

namespace oarlock::cli {

// What the cause is, as one word for scripts (to_string()).
enum class DiagnosedCause {
  kNone,               // no failure is known
  kOutOfMemory,        // the kernel killed the container because of its memory limit or the node's memory
  kDeviceOutOfMemory,  // the memory of a GPU
  kDiskFull,           // a volume, or the ephemeral storage of the node
  kIoError,            // reading or writing failed for another reason
  kEvicted,            // by the kubelet, or by the eviction API (kubectl drain)
  kPreempted,          // by a pod of higher priority
  kNodeLost,           // the node does not respond or does not exist any more
  kPodDeleted,         // by a user or a controller
  kTerminated,         // by SIGTERM from outside
  kImagePull,
  kContainerStart,  // the container cannot be created or started
  kInitContainer,   // an init container failed
  kVolume,          // a volume cannot be attached or mounted
  kUnschedulable,
  kQuota,
  kPodRefused,       // the API server refuses the pods for another reason
  kTemplateInvalid,  // spec.template
  kSpecInvalid,      // the job cannot be read or run as it is
  kNameTaken,
  kConfigInvalid,      // of the trainer or of the command line
  kInputMissing,       // an input file is missing, damaged or not readable
  kMasterUnreachable,  // the ranks did not find each other
  kHang,               // a rank hangs; the group made no progress
  kNonFinite,          // the loss or a gradient is not finite
  kCheckpointUnreadable,
  kDeviceFailed,  // a GPU, its driver or its link
  kDeadline,      // spec.activeDeadlineSeconds
  kPeerLost,      // only collateral failures are known
  kSignal,        // another signal
  kSoftware,      // a bug that the program reported itself
  kExit,          // another exit code
  kSuspended,     // not a failure: the job is suspended
  kNotManaged,    // no operator has seen the job
};
std::string_view to_string(DiagnosedCause cause);

// The objects that the diagnosis reads. Lists may be empty, if the user may not read them.
struct DiagnosisInput {
  api::TrainingJob job;
  std::vector<PodView> pods;      // of the current and the previous attempt
  std::vector<EventView> events;  // about the job and its pods
  std::vector<NodeView> nodes;    // on which those pods ran
  SystemTime now{};
};

struct Diagnosis {
  DiagnosedCause cause = DiagnosedCause::kNone;
  std::string headline;      // one sentence: what happened, or that nothing has
  bool is_resolved = false;  // the job has restarted since and runs, or is complete

  // Where and when. Empty or absent if not known.
  std::string pod;
  std::string node;
  std::optional<int> node_rank;
  std::optional<int> rank;
  std::optional<int> attempt;
  std::optional<int> exit_code;
  std::optional<SystemTime> time;

  std::string explanation;            // of the exit code or the reason, in words
  std::string message;                // of the rank, the kubelet or the API server
  std::vector<std::string> evidence;  // events and states of nodes that support the cause
  std::vector<std::string> cost;      // steps and time lost, restarts used
  std::vector<std::string> history;   // the failures of earlier attempts, newest first
  std::vector<std::string> remedies;  // what to try, the most promising first
};

// Returns the meaning of an exit code, as in docs/exit-codes.md: "137: ended by signal 9 (SIGKILL)".
std::string exit_code_text(int exit_code);

// Returns the node that the diagnosis needs in DiagnosisInput::nodes, and the names of pods whose events it needs.
std::vector<std::string> nodes_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods);
std::vector<std::string> pods_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods);

Diagnosis diagnose(const DiagnosisInput& input);

// Formats the diagnosis as text, and as a document with one member for each of its fields.
std::string diagnosis_text(const Diagnosis& diagnosis, const Style& style, SystemTime now);
nlohmann::json diagnosis_document(const std::string& job, const Diagnosis& diagnosis);

}  // namespace oarlock::cli
