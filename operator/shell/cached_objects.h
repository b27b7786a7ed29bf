// The objects as the cache holds them: what they contain, what is left out, and the memory that they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "operator/core/model.h"
#include "operator/shell/byte_budget.h"

namespace oarlock::control {

struct CachedJob {
  Job job;
  // requested_accelerators() of the spec, which `job` may not hold. Empty for a finished job.
  std::map<std::string, int64_t> accelerators;
  std::optional<ByteBudget::Reservation> reservation;  // for the large parts of the spec
  size_t bytes = 0;                                    // of memory, approximately
};

// Reduces a job to the form that the cache holds. Texts of the report are shortened. A job whose status takes more than
// 128 KiB becomes unreadable: only the phase of the status is kept. The large parts of the spec (template, trainer and
// failure rules) are removed from finished and unreadable jobs and from those of other controllers, because nothing
// reads them. From other jobs they are removed if the budget is exhausted, or if they are too large for a valid job;
// then job.report.is_trimmed is set, and the job must be read from the API server before it is reconciled. Copies of a
// returned job are not counted.
CachedJob make_cached_job(Job job, ByteBudget& budget);

// Memory that template, trainer and failure rules occupy, in bytes.
size_t spec_bytes(const api::Spec& spec);

// Extended resources ("nvidia.com/gpu", "amd.com/gpu" ...) that the containers of a pod request together, by name:
// those of the template, and of spec.resourcesPerNode unless the container "trainer" of the template has the same
// resource. Kubernetes requires whole numbers among the limits. Each count is capped at a million, at most eight
// resources are returned, and a template larger than 256 KiB is not read.
std::map<std::string, int64_t> requested_accelerators(const api::Spec& spec);

// Returns the number of GPUs among these resources; without GPUs, the largest number of any resource, because devices
// such as network adapters accompany the accelerators.
int64_t count_accelerators(const std::map<std::string, int64_t>& resources);

// An object that carries a job's label.
template <typename T>
struct CachedOf {
  T object;
  std::string job;  // the name of the job from the label, which is the key of the cache's index

  bool operator==(const CachedOf&) const = default;
};
using CachedPod = CachedOf<Pod>;
using CachedService = CachedOf<Service>;
using CachedNetworkPolicy = CachedOf<NetworkPolicy>;
using CachedWorkload = CachedOf<Workload>;
using CachedPodGroup = CachedOf<PodGroup>;

// A node: why it is about to be drained or removed, such as "taint karpenter.sh/disrupted"; empty if nothing announces
// that.
struct CachedNode {
  std::string warning;

  bool operator==(const CachedNode&) const = default;
};

struct CachedProfile {
  api::AppliedProfile profile;

  bool operator==(const CachedProfile&) const = default;
};

// Memory that the object takes, in bytes, approximately.
size_t memory_of(const CachedNode& cached);
size_t memory_of(const CachedPod& cached);
size_t memory_of(const CachedService& cached);
size_t memory_of(const CachedNetworkPolicy& cached);
size_t memory_of(const CachedWorkload& cached);
size_t memory_of(const CachedPodGroup& cached);
size_t memory_of(const CachedProfile& cached);

}  // namespace oarlock::control
