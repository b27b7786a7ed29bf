// Limits of the fields and messages of the validation rules. The descriptions (types.cc), the CRD (crd.cc) and the
// validation without an API server (validate.cc) use them.
#pragma once

#include <cstdint>

namespace oarlock::api::rules {

// Limits of the schema.
inline constexpr int kMaxNodes = 4096;
inline constexpr int kMaxProcessesPerNode = 128;
inline constexpr int kMaxRestarts = 1000;
inline constexpr int kMaxTotalRestarts = 10 * kMaxRestarts;
inline constexpr int kMaxContainers = 32;  // and as many init containers: each receives the job's environment
inline constexpr int kMaxPort = 65535;
inline constexpr int kMaxPorts = 64;
inline constexpr int kMaxVolumes = 128;
inline constexpr int kMaxBackoffSeconds = 3600;
inline constexpr int kMaxRules = 20;  // as of a Job's podFailurePolicy
inline constexpr int kMaxExitCode = 255;
inline constexpr int kMaxReason = 60;
inline constexpr int kMaxSeconds = 2147483647;
inline constexpr int kMaxManagedBy = 63;
inline constexpr int kMaxImage = 1024;
inline constexpr int kMaxLabelKey = 317;  // a domain, a slash and a name
inline constexpr int kMaxResources = 64;
inline constexpr int kMaxQuantity = 64;  // characters
inline constexpr int kMaxObjectName = 253;
// Where spec.checkpoints is mounted in container 'trainer'.
inline constexpr char kCheckpointMountPath[] = "/checkpoints";
// Attempts have at most nine digits, so that the next one fits into an int. No job restarts that often.
inline constexpr int kMaxAttempt = 999'999'999;

// Limits that the schema cannot express.

// The API server's limit of a pod's annotations, keys and values together. spec.trainer becomes one of them.
inline constexpr int64_t kMaxAnnotationBytes = 256 << 10;
// Size of spec.template. As a JSON tree it uses up to forty times its size, and etcd stores no pod above 1.5 MiB.
inline constexpr int64_t kMaxTemplateBytes = 512 << 10;
// Size of spec.template, spec.trainer and the environment of further containers, times spec.nodes. etcd stores each pod
// about five times before it compacts (created, scheduled, running, ended, and a restart doubles that), so its default
// quota of 2 GiB holds this size.
inline constexpr int64_t kMaxTotalBytes = 256 << 20;
// Approximate size of the environment that the operator adds to each container.
inline constexpr int64_t kEnvironmentBytes = 1024;

// The API server calculates quantities with all their digits. For a large exponent this takes minutes, for each
// request.
inline constexpr char kQuantityTooLong[] = "a quantity has at most 64 characters and an exponent of at most two digits";

// An extended resource cannot be overcommitted, so the API server requires a limit.
inline constexpr char kLimitRequired[] = "needs a limit of the same amount: set it in limits, and leave it out here";
inline constexpr char kNotWhole[] = "is not a whole number, and this resource cannot be divided";
inline constexpr char kTooManyGpus[] =
    "more than 128 GPUs: one rank would start on each, and a pod has at most 128 ranks; correct the number, or set "
    "spec.processesPerNode";
static_assert(kMaxProcessesPerNode == 128, "kTooManyGpus names the limit");

// <name>-<attempt>-<node rank> is a hostname of at most 63 characters; 4 digits are kept for the attempt.
inline constexpr int kNameRoom = 57;

inline constexpr char kName[] =
    "the name becomes the name of a Service and of pods: it must start with a letter and contain only a-z, 0-9 and '-'";
inline constexpr char kNameLength[] =
    "the name is too long: pods are named <name>-<attempt>-<node rank> and a hostname has at most 63 characters; use "
    "at most 57 characters minus the number of digits of the last node rank";
inline constexpr char kImmutable[] =
    "nodes, profile, processesPerNode, image, resourcesPerNode, checkpoints, scheduling.topology, template, trainer "
    "and "
    "rendezvous shape the ranks and cannot change while the job runs or after it ended, except for nodes of a job with "
    "elastic, which cannot be "
    "added or removed; set suspend: true and wait for phase Suspended, or create a new job";
inline constexpr char kElasticBounds[] =
    "nodes is the desired number of nodes: it must be at least elastic.minNodes and at most elastic.maxNodes";
inline constexpr char kPortIsMetrics[] =
    "rendezvous.port is one of the metrics ports (9400 and, with more processes per node, those after it); choose "
    "another, such as 29500";
inline constexpr char kPortAfter[] =
    "with restartScope Rank the launchers use the port after rendezvous.port; choose another, such as 29500";
inline constexpr char kPortTaken[] =
    "a container other than 'trainer' declares the rendezvous port, the port after it with restartScope Rank, or a "
    "metrics port of the ranks (9400 and those after it); containers of one pod share their ports, so change one of "
    "them";
inline constexpr char kTrainer[] =
    "there must be one container named 'trainer': it runs the ranks and receives their environment; omit containers to "
    "use the default one";
inline constexpr char kTwoImages[] =
    "the container 'trainer' of the template has an image as well; leave one of the two out";
inline constexpr char kClaimOrSize[] =
    "checkpoints must have exactly one of claimName, the name of an existing PersistentVolumeClaim, and size, with "
    "which the operator creates one";
inline constexpr char kClassNeedsSize[] =
    "storageClassName is for a claim that the operator creates: set size, or leave it out";
inline constexpr char kTwoCheckpointVolumes[] =
    "the template has a volume named 'checkpoints' as well; leave one of the two out";
inline constexpr char kCheckpointMount[] =
    "spec.checkpoints is mounted at /checkpoints in container 'trainer', and another volume there would hide it; mount "
    "yours elsewhere, or leave spec.checkpoints out";
inline constexpr char kRestartPolicy[] =
    "restartPolicy must be Never, or left out: a rank that restarts alone cannot rejoin, so the operator restarts the "
    "whole group";
inline constexpr char kTrainerRestarts[] =
    "the container 'trainer' must not restart by itself, or its job never ends: leave out restartPolicy and "
    "restartPolicyRules; spec.failurePolicy restarts the group";
inline constexpr char kOneRequirement[] =
    "a rule must have exactly one of onExitCodes, onPodReasons and onPodConditions; write a rule for each";
inline constexpr char kIgnoreNeedsExit[] =
    "Ignore counts the rank as done, so it requires onExitCodes: a pod that was removed has not completed its work; "
    "use RestartFree to restart without counting";
inline constexpr char kManagedByForm[] =
    "managedBy must be a domain and a path, such as kueue.x-k8s.io/multikueue; leave it out for this operator";
inline constexpr char kManagedByFixed[] =
    "managedBy cannot change: two controllers would manage one job; create a new job";
inline constexpr char kHostname[] =
    "hostname and subdomain are set by the operator, so that the ranks find each other; leave them out";
inline constexpr char kVolumeName[] =
    "the volume names oarlock-config and oarlock-shm are reserved for the operator; choose another";
inline constexpr char kConfigMount[] =
    "the operator mounts spec.trainer at /etc/oarlock in container 'trainer'; mount yours elsewhere, or leave "
    "spec.trainer out";

}  // namespace oarlock::api::rules
