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

// Makes the job the controller of an object, so that the garbage collector removes the object with the job.
nlohmann::json owner_reference(const Job& job);

// Headless, with addresses for pods that are not ready yet: rendezvous comes before readiness.
nlohmann::json desired_service(const Job& job);

// The pods of one attempt, from one parse of the template. It keeps one text with gaps for the parts that depend on the
// node rank, so that its own size does not depend on the number of nodes. REQUIRES: api::check(job) is empty.
class PodFactory {
 public:
  PodFactory(const Job& job, int attempt);

  // The pod as JSON text: the body of the request that creates it.
  std::string text(int node_rank) const;
  // Approximate length of one such text.
  size_t text_size() const { return frame_.size(); }
  // The same pod as a JSON tree, for readers that need one.
  nlohmann::json pod(int node_rank) const;

  // The contract's environment. config_file is the mounted spec.trainer, if there is one; checkpoint_dir is
  // <mountPath>/<job> of the volume mount named `checkpoints` of the trainer container, if there is one.
  const Group& group() const { return group_; }

  // Contract variables that the template sets to a value of its own and that the operator's replaces, in the template's
  // order.
  const std::vector<std::string>& overridden_variables() const { return overridden_; }

 private:
  // The parts of a pod that depend on its node rank.
  enum class Part { kName, kRankLabel, kEnvironment, kHostname };
  struct Gap {
    Part part;
    size_t begin;  // in frame_
    size_t size;
  };
  void set_frame(nlohmann::json pod, size_t trainer_index);
  std::string part_text(Part part, int node_rank) const;

  Group group_;
  std::string name_prefix_;
  std::vector<std::string> overridden_;
  std::vector<std::string> user_set_;  // contract variables for which the template's value is used
  std::string frame_;                  // the pod's text, with a placeholder in each gap
  std::vector<Gap> gaps_;              // in the order of their positions
};

}  // namespace oarlock::control
