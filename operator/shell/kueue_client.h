// Calls to Kueue's API for jobs with a queue: reads of the objects that an admission names, and changes of Workloads.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/clock.h"
#include "kube/client/client.h"
#include "operator/core/model.h"
#include "operator/core/workload.h"

namespace oarlock::control {

// Thread-safe. A call of several requests stops at the first failure.
class KueueClient {
 public:
  // The client's responses must be whole objects.
  KueueClient(kube::Client client, std::shared_ptr<const Clock> clock)
      : client_(std::move(client)), clock_(std::move(clock)) {}

  // Reads the flavors of the admission, unless that was done a moment ago. Returns the job with a template to which it
  // is applied (with_admission()); kInvalid if it cannot be applied.
  kube::ApiResult<Job> place(const Job& job, const Admission& admission) const;

  // Reads the Workload that MultiKueue has created for the job. Returns kInvalid if pods like `pod` may not run with it
  // (prebuilt_problem()). REQUIRES: prebuilt_workload(job) is not empty.
  kube::ApiResult<void> check_prebuilt(const Job& job, const nlohmann::json& pod) const;

  // Reads the priority class that the job or its pods name, or that of the Workload which this one replaces. Returns
  // the body of the job's Workload; kInvalid if the class does not exist.
  kube::ApiResult<std::string> workload(const Job& job, const CreateWorkload& create, const nlohmann::json& pod) const;

  // Changes the status of a Workload, and returns the changed object. kNotFound or kConflict: it does not exist any
  // more, or does not need the change.
  kube::ApiResult<std::string> update(const kube::ObjectKey& workload, const UpdateWorkload& change) const;

 private:
  struct Flavor {
    nlohmann::json object;  // only its name and its spec
    SteadyTime read_at;
  };

  kube::ApiResult<nlohmann::json> flavor(const std::string& name) const;
  kube::ApiResult<std::optional<WorkloadPriority>> named_priority(const Job& job, const nlohmann::json& pod) const;
  kube::ApiResult<std::optional<WorkloadPriority>> replaced_priority(const kube::ObjectKey& replaced) const;

  const kube::Client client_;
  const std::shared_ptr<const Clock> clock_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Flavor> flavors_;  // guarded by mutex_; those that may still be used
};

}  // namespace oarlock::control
