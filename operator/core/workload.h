// The objects of Kueue as JSON: the Workload that requests quota for a job, the changes of its status, and the pods of
// a job that Kueue has admitted. Kueue's own controllers of jobs (pkg/controller/jobframework) do the same for the
// kinds that they know. All functions are pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "operator/core/model.h"

namespace oarlock::control {

inline constexpr char kKueueGroup[] = "kueue.x-k8s.io";
inline constexpr char kKueueVersion[] = "v1beta2";
// Annotations of pod templates with which users request a topology.
inline constexpr char kRequiredTopology[] = "kueue.x-k8s.io/podset-required-topology";
inline constexpr char kPreferredTopology[] = "kueue.x-k8s.io/podset-preferred-topology";
inline constexpr char kUnconstrainedTopology[] = "kueue.x-k8s.io/podset-unconstrained-topology";

// Name of the only podSet of a job's Workload.
inline constexpr char kPodSet[] = "nodes";

// The Workload that MultiKueue has created for the job in this cluster; empty: none. It is recorded with the queue, so
// that a changed annotation has no effect on quota that the job holds.
std::string prebuilt_workload(const Job& job);

// trainingjob-<job>-<digest of the job's uid>: a job of the same name that was deleted has another Workload. The
// Workloads that take over its quota, one after the other, have the suffixes -2, -3 ... A job that MultiKueue has
// created names its only Workload.
std::string workload_name(const Job& job, int slice = 1);

// Returns the number of a name that workload_name() made for the job; nullopt for any other name.
std::optional<int> workload_slice(const Job& job, std::string_view name);

// A WorkloadPriorityClass, or the PriorityClass of the pods.
struct WorkloadPriority {
  std::string group;
  std::string kind;
  std::string name;
  int64_t value = 0;
};

// Returns the class that the job or its pods name, without its value; absent if they name none. `pod` is a pod of the
// job.
std::optional<WorkloadPriority> find_priority(const Job& job, const nlohmann::json& pod);

// Returns the Workload. Its template has those fields of `pod` from which Kueue and the scheduler compute requests and
// constraints. The topology annotations of the pod become the topology request, in which node ranks order the pods.
nlohmann::json desired_workload(const Job& job, const CreateWorkload& create, const nlohmann::json& pod,
                                const std::optional<WorkloadPriority>& priority);

// Returns whether the Workload lets the job's pods run: it is admitted, and neither evicted, finished nor being
// deleted.
bool admits_pods(const Workload& workload);

// Returns why the pods of a job may not run with the Workload `live`, which the operator has not created: a pod like
// `pod` requests more than the Workload, for which quota was assigned. Empty if they may. Kueue finishes such a
// Workload of the kinds that it supports with the reason OutOfSync.
std::string prebuilt_problem(const nlohmann::json& live, const nlohmann::json& pod);

// Returns the merge patch of the status of the Workload `live`, with its uid and resourceVersion as preconditions.
// Absent if it has another uid, or does not need the change.
std::optional<nlohmann::json> workload_status_patch(const nlohmann::json& live, const UpdateWorkload& change);

// Returns the job with a template to which the admission is applied: node labels and tolerations of its flavors, the
// admission checks' updates, and for a topology what Kueue needs to place each pod. `flavors` are the ResourceFlavors
// of the admission. Fails with kConfig if two of them contradict each other or the template.
Result<Job> with_admission(const Job& job, const Admission& admission, const std::vector<nlohmann::json>& flavors);

}  // namespace oarlock::control
