#include "operator/core/creation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "operator/core/backoff.h"
#include "operator/core/desired.h"
#include "operator/core/network_policy.h"
#include "operator/core/plan.h"

namespace oarlock::control {
namespace {

std::string text_of(const nlohmann::json& object) {
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The policy comes before the Service and the pods, so that no pod runs without it.
std::vector<Action> network_policy_actions(const Observed& observed, const Membership& members) {
  if (!members.wants_network_policy || members.network_policy_in_the_way != nullptr) return {};
  nlohmann::json desired = desired_network_policy(observed.job, *observed.metrics_peers);
  const NetworkPolicy* present = members.network_policy;
  if (present == nullptr)
    return {CreateNetworkPolicy{network_policy_name(observed.job.metadata.name), text_of(desired)}};
  if (present->deleting || present->digest == spec_digest(desired["spec"])) return {};
  desired["metadata"]["uid"] = present->uid;
  return {ReplaceNetworkPolicy{present->name, text_of(desired)}};
}

}  // namespace

bool may_create_pods(api::Phase phase) {
  return phase == api::Phase::kNone || phase == api::Phase::kPending || phase == api::Phase::kRestarting;
}

bool lacks_objects(const Job& job, const Membership& members) {
  const bool lacks_policy = members.wants_network_policy && members.network_policy == nullptr;
  return members.service == nullptr || lacks_policy || (may_create_pods(job.status.phase) && lacks_pods(members));
}

std::string names_in_the_way(const Membership& members) {
  std::vector<std::string> names;
  if (members.service_in_the_way != nullptr) names.push_back("Service " + members.service_in_the_way->name);
  if (members.network_policy_in_the_way != nullptr)
    names.push_back("NetworkPolicy " + members.network_policy_in_the_way->name);
  for (const Pod* pod : members.in_the_way) names.push_back("pod " + pod->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Creations creations(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  Creations out;
  append(out.actions, network_policy_actions(observed, members));
  if (members.service == nullptr)
    out.actions.emplace_back(CreateService{service_name(job), text_of(desired_service(job))});
  if (!may_create_pods(job.status.phase) || !lacks_pods(members)) return out;
  out.look_again = time_left(restart_time(job.spec.failure_policy, job.status), observed.now);
  if (out.look_again) return out;
  for (size_t i = 0; i < members.current.size(); ++i) {
    if (members.current[i] != nullptr || is_finished(members, i)) continue;
    const int node_rank = static_cast<int>(i);
    const int attempt = job.status.attempt;
    out.actions.emplace_back(CreatePod{pod_name(job, attempt, node_rank), attempt, node_rank});
  }
  return out;
}

}  // namespace oarlock::control
