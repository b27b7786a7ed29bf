// The contract between the operator, the launcher and the ranks: environment variables, labels, paths, the termination
// message and the status document. The operator and the trainer share nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/usage_class.h"

namespace oarlock {

// ---- Environment of a rank -------------------------------------------------------------------------------------
// The names that PyTorch's env:// rendezvous reads.
inline constexpr char kEnvRank[] = "RANK";                        // 0 .. WORLD_SIZE-1
inline constexpr char kEnvLocalRank[] = "LOCAL_RANK";             // 0 .. LOCAL_WORLD_SIZE-1
inline constexpr char kEnvWorldSize[] = "WORLD_SIZE";             // ranks in the job
inline constexpr char kEnvLocalWorldSize[] = "LOCAL_WORLD_SIZE";  // ranks on this node
inline constexpr char kEnvNodeRank[] = "NODE_RANK";               // 0 .. nodes-1
inline constexpr char kEnvMasterAddr[] = "MASTER_ADDR";           // host of rank 0
inline constexpr char kEnvMasterPort[] = "MASTER_PORT";           // TCPStore port of rank 0
// The names that torchrun reads, so that a Python image needs no arguments.
inline constexpr char kEnvPetNnodes[] = "PET_NNODES";
inline constexpr char kEnvPetNprocPerNode[] = "PET_NPROC_PER_NODE";
inline constexpr char kEnvPetNodeRank[] = "PET_NODE_RANK";
inline constexpr char kEnvPetMasterAddr[] = "PET_MASTER_ADDR";
inline constexpr char kEnvPetMasterPort[] = "PET_MASTER_PORT";
// Names that are specific to Oarlock.
inline constexpr char kEnvJob[] = "OARLOCK_JOB";  // metadata.name of the TrainingJob
inline constexpr char kEnvNamespace[] = "OARLOCK_NAMESPACE";
inline constexpr char kEnvUid[] = "OARLOCK_UID";          // metadata.uid; fences checkpoints together with the attempt
inline constexpr char kEnvAttempt[] = "OARLOCK_ATTEMPT";  // 0, 1, ...: number of earlier starts of the group
inline constexpr char kEnvConfig[] = "OARLOCK_CONFIG";    // file with the trainer config (YAML or JSON)
inline constexpr char kEnvCheckpointDir[] = "OARLOCK_CHECKPOINT_DIR";  // default of checkpoint.dir
inline constexpr char kEnvMetricsPort[] = "OARLOCK_METRICS_PORT";  // of local rank 0; local rank n serves on port + n
inline constexpr char kEnvTerminationLog[] = "OARLOCK_TERMINATION_LOG";  // file for the termination message
// Set if the launcher prefixes the output of the process with "[RANK n]"; its log then omits the prefix.
inline constexpr char kEnvLinesPrefixed[] = "OARLOCK_LINES_PREFIXED";
// Descriptor of the connection to the launcher, for a rank that can regroup (docs/recovery.md).
inline constexpr char kEnvRegroupFd[] = "OARLOCK_REGROUP_FD";
// Secret that the launchers of one attempt share; authenticates them to the coordinator.
inline constexpr char kEnvRegroupToken[] = "OARLOCK_REGROUP_TOKEN";
// Set for a pod that replaces another one of the same attempt.
inline constexpr char kEnvReplacement[] = "OARLOCK_REPLACEMENT";
// Defaults of oarlock launch's --max-restarts, --restart-policy and --restart-backoff, for jobs whose
// failurePolicy.restartScope is Rank. The launcher does not pass them on to the ranks.
inline constexpr char kEnvMaxRestarts[] = "OARLOCK_MAX_RESTARTS";
inline constexpr char kEnvRestartPolicy[] = "OARLOCK_RESTART_POLICY";
inline constexpr char kEnvRestartBackoff[] = "OARLOCK_RESTART_BACKOFF";
// Defaults of oarlock launch's --min-nodes and --shrink-after, for such jobs with spec.elastic. The launcher does not
// pass them on to the ranks, either.
inline constexpr char kEnvMinNodes[] = "OARLOCK_MIN_NODES";
inline constexpr char kEnvShrinkAfter[] = "OARLOCK_SHRINK_AFTER";

// Path of a FIFO to which the program of a rank writes its progress, one ProgressReport per line. The launcher reads
// it.
inline constexpr char kEnvProgress[] = "OARLOCK_PROGRESS";
// Default of oarlock launch's --progress-pattern.
inline constexpr char kEnvProgressPattern[] = "OARLOCK_PROGRESS_PATTERN";

inline constexpr int kDefaultMasterPort = 29500;
inline constexpr int kRegroupPortOffset = 1;  // the coordinator listens on MASTER_PORT plus this
inline constexpr int kDefaultMetricsPort = 9400;
inline constexpr char kDefaultTerminationLog[] = "/dev/termination-log";

// ---- Kubernetes names ------------------------------------------------------------------------------------------
inline constexpr char kGroup[] = "oarlock.dev";
inline constexpr char kVersion[] = "v1alpha1";
inline constexpr char kApiVersion[] = "oarlock.dev/v1alpha1";
inline constexpr char kKind[] = "TrainingJob";
inline constexpr char kPlural[] = "trainingjobs";

inline constexpr char kLabelJobName[] = "oarlock.dev/job-name";    // on Services, Pods and PersistentVolumeClaims
inline constexpr char kLabelAttempt[] = "oarlock.dev/attempt";     // on Pods
inline constexpr char kLabelNodeRank[] = "oarlock.dev/node-rank";  // on Pods
inline constexpr char kLabelManagedBy[] = "app.kubernetes.io/managed-by";
// Labels of Kueue, which users set on TrainingJobs.
inline constexpr char kLabelQueue[] = "kueue.x-k8s.io/queue-name";              // a LocalQueue
inline constexpr char kLabelPriorityClass[] = "kueue.x-k8s.io/priority-class";  // a WorkloadPriorityClass
inline constexpr char kManagedByOarlock[] = "oarlock-operator";
// On Services: the random number from which the operator derives OARLOCK_REGROUP_TOKEN of each attempt.
inline constexpr char kAnnotationRegroupKey[] = "oarlock.dev/regroup-key";
inline constexpr char kAnnotationConfig[] =
    "oarlock.dev/trainer-config";  // JSON of spec.trainer, mounted by the downward API

inline constexpr char kTrainerContainer[] = "trainer";  // the container that runs the ranks
inline constexpr char kConfigVolume[] = "oarlock-config";
inline constexpr char kConfigMountPath[] = "/etc/oarlock";
inline constexpr char kConfigFile[] = "trainer.json";  // OARLOCK_CONFIG=/etc/oarlock/trainer.json
inline constexpr char kCheckpointVolume[] =
    "checkpoints";  // mounted by the template: OARLOCK_CHECKPOINT_DIR=<mountPath>/<job name>
inline constexpr char kShmVolume[] = "oarlock-shm";  // Memory emptyDir on /dev/shm

// ---- Termination message ---------------------------------------------------------------------------------------
inline constexpr size_t kTerminationMessageLimit = 4096;  // bytes; the kubelet truncates longer messages

// The reasons that another program than the writer of the message compares with.
inline constexpr char kReasonCompleted[] = "Completed";      // of a rank whose training is complete
inline constexpr char kReasonInterrupted[] = "Interrupted";  // of a rank that saved and ended after a signal
inline constexpr char kReasonPeerLost[] = "PeerLost";        // of a rank that lost the connection to another one
inline constexpr char kReasonDeviceFailed[] = "DeviceFailed";
inline constexpr char kReasonHostUnknown[] = "HostUnknown";
// Of errors in the input of a rank, which are permanent and which a request to stop the rank cannot cause.
inline constexpr char kReasonUsageInvalid[] = "UsageInvalid";
inline constexpr char kReasonDataInvalid[] = "DataInvalid";
inline constexpr char kReasonInputMissing[] = "InputMissing";
inline constexpr char kReasonCheckpointUnreadable[] = "CheckpointUnreadable";
inline constexpr char kReasonPermissionDenied[] = "PermissionDenied";
inline constexpr char kReasonConfigInvalid[] = "ConfigInvalid";
// Of a launcher that has left its group by itself, because it lost the connection to node rank 0. The operator replaces
// its pod while the others continue (operator/core/membership.h).
inline constexpr char kReasonDisconnected[] = "Disconnected";

// The final report of a rank, one JSON object that the kubelet copies into the status of the container.
struct TerminationMessage {
  int rank = 0;
  int64_t step = -1;             // completed optimizer steps; -1: not known, and not written
  int64_t checkpoint_step = -1;  // step of the newest complete checkpoint; -1: none
  std::string reason;            // one CamelCase word: kReasonCompleted, ConfigInvalid ...
  std::string message;           // one line for users; truncated if the object would exceed the limit

  bool operator==(const TerminationMessage&) const = default;
};

// Returns at most kTerminationMessageLimit bytes of valid UTF-8.
std::string to_json(const TerminationMessage& message);
// Returns an empty value if the text is not a JSON object with a text "reason", a "rank" and a "checkpointStep", which
// distinguish it from a line of a log in JSON. Fields of the wrong type keep their defaults.
std::optional<TerminationMessage> termination_message_from_json(std::string_view text);

// Returns whether a termination message reports that the training is complete. Many programs exit with 0 on SIGTERM, so
// the operator and the launchers count exit code 0 of a program that was requested to stop as success only then.
bool reports_completion(std::string_view text);

// ---- Status endpoint -------------------------------------------------------------------------------------------
inline constexpr char kStatusPath[] = "/statusz";
inline constexpr char kMetricsPath[] = "/metrics";

// In-pod restarts: restarts of all processes of a group by its launchers, in the same pods (`oarlock launch
// --restart-policy group`). The launcher of node rank 0 hands them over to its ranks in this variable, as to_json()
// returns them, and oarlock-trainer reports them as the field inPodRestarts of /statusz.
inline constexpr char kEnvInPodRestarts[] = "OARLOCK_IN_POD_RESTARTS";

struct InPodRestarts {
  int64_t total = 0;
  double seconds = 0;    // from the failure of a rank until all processes were started again; the sum of all
  int rank = -1;         // that failed first, before the last one; -1: not known
  std::string reason{};  // of the last one

  bool operator==(const InPodRestarts&) const = default;
};

std::string to_json(const InPodRestarts& restarts);
std::optional<InPodRestarts> in_pod_restarts_from_json(std::string_view text);  // nothing without a positive total

// The part of a response to GET /statusz that the launcher of node rank 0 serves, if its program neither listens on
// that port nor reports its progress.
struct LauncherStatus {
  int attempt = 0;
  InPodRestarts in_pod_restarts;

  bool operator==(const LauncherStatus&) const = default;
};

// Also reads the response of a rank. Nothing without in-pod restarts.
std::optional<LauncherStatus> launcher_status_from_json(std::string_view text);

// RankStatus::phase of a launcher whose rank has started again and has not reported a step since.
inline constexpr char kPhaseOfStart[] = "start";

// The response to GET /statusz of a rank: a JSON object with these fields in camelCase.
struct RankStatus {
  int rank = 0;
  int world_size = 1;
  int attempt = 0;
  std::string phase;             // rendezvous, restore, train, eval, checkpoint, done, failed
  int64_t step = 0;              // completed optimizer steps over all attempts
  int64_t target_steps = 0;      // 0: unknown
  int64_t checkpoint_step = -1;  // -1: none
  double last_step_seconds = 0;
  std::optional<double> loss;       // of the last logged step; absent before that and if not finite
  double samples_per_second = 0;    // of the whole job
  int64_t collective_sequence = 0;  // collectives that this rank has started
  std::string updated_at;           // RFC 3339
  // Recoveries from the loss of a rank in which the other ranks kept their state and no step was lost.
  int64_t recoveries = 0;
  double recovery_seconds = 0;    // from the detection of a loss until training continued; the sum of all
  std::string recovered_ranks{};  // the ranks that were replaced in the last one, such as "2" or "0,3"
  std::string recovery_reason{};  // of the last one
  std::optional<InPodRestarts> in_pod_restarts{};
  // What the group has done since the process that serves this status started: counters of kReportedUsageClasses.
  std::optional<UsageSeconds> usage_seconds{};

  bool operator==(const RankStatus&) const = default;
};

// What a rank has reported to the launcher of its node, and the state of its process. Empty members are not written.
struct RankActivity {
  int rank = 0;
  std::optional<int64_t> step{};  // that the rank has reported
  std::string updated_at{};       // RFC 3339, of the last report
  int pid = 0;                    // of the process of the rank that is stopped, else of that with the most CPU time
  std::string program{};          // the name of that process
  std::string state{};            // running, sleeping, stopped, uninterruptible (in a system call), ended ...
  std::string wait_channel{};     // the function of the kernel in which it waits

  bool operator==(const RankActivity&) const = default;
};

// A launcher adds `ranks`, the ranks of its node, as the field "ranks".
std::string to_json(const LauncherStatus& status, const std::vector<RankActivity>& ranks = {});
std::string to_json(const RankStatus& status, const std::vector<RankActivity>& ranks = {});
// Returns the ranks of a launcher's response, or the one of a rank's own; at most `limit`.
std::vector<RankActivity> rank_activities_from_json(std::string_view text, size_t limit);
std::optional<RankStatus> rank_status_from_json(std::string_view text);

// ---- Progress reports ------------------------------------------------------------------------------------------
// Bytes of a line with its newline: PIPE_BUF, so that the lines of several writers of a FIFO do not mix.
inline constexpr size_t kProgressLineLimit = 4096;
inline constexpr size_t kMaxReportedMetrics = 64;  // of one line, and of one node

// One line of the protocol of OARLOCK_PROGRESS (docs/guides/progress.md): a JSON object with these fields in camelCase.
// All are optional.
struct ProgressReport {
  std::optional<int> rank{};                 // absent: the rank whose FIFO this is
  std::optional<int64_t> step{};             // completed steps over all attempts
  std::optional<int64_t> target_steps{};     // of the whole run
  std::optional<int64_t> checkpoint_step{};  // of the newest complete checkpoint
  std::optional<double> loss{};              // finite, as the following numbers
  std::optional<double> samples_per_second{};
  std::string phase{};                      // such as "eval"; at most 60 bytes
  std::map<std::string, double> metrics{};  // any other numbers

  bool operator==(const ProgressReport&) const = default;
};

// Returns a line without its newline. Metrics that do not fit into kProgressLineLimit are omitted.
std::string to_json(ProgressReport report);
// Returns nothing if the text is not a JSON object. Unknown fields, values of the wrong
// type or out of range, and Python's NaN and Infinity are ignored. The text may have any content.
std::optional<ProgressReport> progress_report_from_json(std::string_view text);

}  // namespace oarlock
