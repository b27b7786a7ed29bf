#include "tests/support/model/profile_invariants.h"

#include <optional>
#include <variant>

#include "api/profile.h"
#include "operator/core/desired.h"
#include "operator/core/membership.h"
#include "operator/core/pods.h"

namespace oarlock::test {

using namespace control;  // NOLINT: this file is about its types

std::string check_profiles(const SimCluster& before, const SimCluster& after) {
  const Job& job = after.job();
  const int64_t recorded = recorded_profile(job.status);
  if (recorded != recorded_profile(before.job().status) && !api::awaits_start(before.job().status))
    return "the profile of a job that has started changes";
  if (is_terminal(job.status.phase) || job.status.phase == api::Phase::kSuspended) return "";
  for (const auto& [name, generation] : after.objects().pod_profiles) {
    const bool is_current = parse_pod_name(job, name)->attempt == job.status.attempt;
    if (is_current && after.pods().contains(name) && generation != recorded)
      return "a pod has another profile than its job";
  }
  return "";
}

std::string check_resumed_profile(const Plan& plan, const SimCluster& cluster) {
  if (!cluster.objects().profile || cluster.job().status.phase != api::Phase::kSuspended) return "";
  for (const Action& action : plan.actions) {
    const auto* patch = std::get_if<PatchStatus>(&action);
    if (patch != nullptr && can_create_pods(patch->status.phase) &&
        recorded_profile(patch->status) != *cluster.objects().profile)
      return "a job is resumed with another profile than the present one";
  }
  return "";
}

}  // namespace oarlock::test
