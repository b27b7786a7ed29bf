// Calls to Kueue's API for jobs with a queue: reads of the objects that an admission names, and changes of Workloads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "kube/client/client.h"
#include "operator/core/model.h"
#include "operator/core/workload.h"

namespace oarlock::control {

// Thread-safe. A call of several requests stops at the first failure.
class KueueClient {
 public:
  // The client's responses must be whole objects.
  explicit KueueClient(kube::Client client) : client_(std::move(client)) {}

  // Reads the flavors of the admission. Returns the job with a template to which it is applied (with_admission());
  // kInvalid if it cannot be applied.
  kube::ApiResult<Job> place(const Job& job, const Admission& admission) const;

  // Reads the priority class that the job or its pods name, or that of the Workload which this one replaces. Returns
  // the body of the job's Workload; kInvalid if the class does not exist.
  kube::ApiResult<std::string> workload(const Job& job, const CreateWorkload& create, const nlohmann::json& pod) const;

  // Changes the status of a Workload, and returns the changed object. kNotFound or kConflict: it does not exist any
  // more, or does not need the change.
  kube::ApiResult<std::string> update(const kube::ObjectKey& workload, const UpdateWorkload& change) const;

 private:
  kube::ApiResult<std::optional<WorkloadPriority>> named_priority(const Job& job, const nlohmann::json& pod) const;
  kube::ApiResult<std::optional<WorkloadPriority>> replaced_priority(const kube::ObjectKey& replaced) const;

  const kube::Client client_;
};

}  // namespace oarlock::control
