#include "cli/run/restart.h"

#include "operator/core/desired.h"

namespace oarlock::run {

control::Failure judge_exit(const api::TrainingJob& job, int restarts, int node, int exit_code,
                            const std::string& message) {
  api::TrainingJob observed = job;
  observed.status = {};
  observed.status.restarts.charged = restarts;
  control::Pod pod;
  pod.name = control::pod_name(job, 0, node);
  pod.phase = control::PodPhase::kFailed;
  pod.trainer.emplace();
  pod.trainer->exit_code = exit_code;
  pod.trainer->message = message;
  // The other nodes' pods are left out: the supervisor has already found whom to blame.
  control::Membership members;
  members.current.resize(static_cast<size_t>(job.spec.nodes), nullptr);
  members.current[static_cast<size_t>(node)] = &pod;
  return control::judge(observed, members, SystemTime{});
}

}  // namespace oarlock::run
