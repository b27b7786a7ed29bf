// spec -> the objects of one attempt. Pure; `oarlock render` prints these too.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/environment.h"
#include "operator/core/model.h"

namespace oarlock::control {

std::string service_name(const Job& job);                          // the job's name
std::string pod_name(const Job& job, int attempt, int node_rank);  // <job>-<attempt>-<node rank>; also its hostname
std::string master_address(const Job& job, int attempt);           // <pod of rank 0>.<service>.<namespace>.svc
int metrics_port(const Job& job);                                  // of local rank 0 in each pod

// The environment contract of an attempt in the cluster. `config_file` and `checkpoint_dir` come from the job: the file
// under /etc/oarlock when spec.trainer is there, and <mountPath>/<job> when the template mounts a volume `checkpoints`.
Group group_of(const Job& job, int attempt);

nlohmann::json desired_service(const Job& job);

// The pods of node ranks 0..nodes-1 from one parse of the template. REQUIRES: api::check(job) is empty.
class PodFactory {
 public:
  PodFactory(const Job& job, int attempt);
  nlohmann::json pod(int node_rank) const;

  // Contract variables that the template sets and that the operator's value replaces, in the template's order.
  const std::vector<std::string>& overridden_variables() const { return overridden_; }

 private:
  const Job& job_;
  Group group_;
  std::string template_;  // JSON of the pod without what depends on the rank
  std::vector<std::string> overridden_;
};

}  // namespace oarlock::control
