// spec -> the objects of one attempt. Pure; `oarlock render` prints these too.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/core/environment.h"
#include "operator/core/model.h"

namespace oarlock::control {

std::string service_name(const Job& job);                          // the job's name
std::string pod_name(const Job& job, int attempt, int node_rank);  // <job>-<attempt>-<node rank>; also its hostname
std::string master_address(const Job& job, int attempt);           // <pod of node 0>.<service>.<namespace>.svc
// Where the ranks of a pod serve /metrics and /statusz: local rank n on this port + n.
int metrics_port(const Job& job);

// Headless, with addresses for pods that are not ready yet: rendezvous comes before readiness.
nlohmann::json desired_service(const Job& job);

// The pods of one attempt, from one parse of the template. REQUIRES: api::check(job) is empty.
class PodFactory {
 public:
  PodFactory(const Job& job, int attempt);

  nlohmann::json pod(int node_rank) const;

  // The contract's environment. config_file is the mounted spec.trainer, if there is one; checkpoint_dir is
  // <mountPath>/<job> of the volume mount named `checkpoints` of the trainer container, if there is one.
  const Group& group() const { return group_; }

  // Contract variables that the template sets to a value of its own and that the operator's replaces, in the template's
  // order.
  const std::vector<std::string>& overridden_variables() const { return overridden_; }

 private:
  Group group_;
  nlohmann::json base_;   // the pod without what depends on the node rank
  size_t trainer_ = 0;    // index of the trainer container
  nlohmann::json users_;  // the environment that the template gives it, less the overridden variables
  std::string name_prefix_;
  std::vector<std::string> overridden_;
};

}  // namespace oarlock::control
