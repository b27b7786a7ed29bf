#include "tests/support/model/bad_node_invariants.h"

#include <algorithm>

#include "operator/core/membership.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT: this file is about its types
using api::BadNode;
using api::NodeAvoidance;

const BadNode* find_node(const api::Status& status, const std::string& name) {
  const auto found = std::ranges::find(status.bad_nodes, name, &BadNode::name);
  return found == status.bad_nodes.end() ? nullptr : &*found;
}

bool is_active(const Job& job, const BadNode& node, SystemTime now) {
  return now - node.last_time < std::chrono::seconds(job.spec.failure_policy.avoid_nodes_seconds);
}

}  // namespace

std::string check_avoidance(const CreatePod& create, const SimCluster& before) {
  const AvoidedNodes avoided = create.avoided.value_or(AvoidedNodes{});
  for (const BadNode& node : before.job().status.bad_nodes) {
    const bool is_required = node.avoidance == NodeAvoidance::kRequired && is_active(before.job(), node, before.now());
    if (is_required && std::ranges::find(avoided.required, node.name) == avoided.required.end())
      return "a pod is created that does not avoid a node on which the job has failed too often";
  }
  return "";
}

std::string check_bad_nodes(const SimCluster& before, const api::Status& is, bool has_failed) {
  const api::Status& was = before.job().status;
  const int limit = before.job().spec.failure_policy.avoid_nodes_after;
  if (is.bad_nodes.size() > api::kMaxBadNodes) return "too many nodes are recorded";
  int counted = 0;
  for (const BadNode& node : is.bad_nodes) {
    const BadNode* known = find_node(was, node.name);
    const int failures = node.failures - (known == nullptr ? 0 : known->failures);
    if (failures < 0) return "failures of a node are lost";
    counted += failures;
    const NodeAvoidance from = known == nullptr ? NodeAvoidance::kNone : known->avoidance;
    if (failures == 0 && node.avoidance > from) return "a node is avoided more without a failure";
    const auto wanted = [limit](int count) {
      return count >= limit ? NodeAvoidance::kRequired : NodeAvoidance::kPreferred;
    };
    // An avoidance that has become weaker remains so, and may become weaker in the same status.
    const bool may_be_weaker = known != nullptr && (from < wanted(known->failures) || from == NodeAvoidance::kRequired);
    const bool is_as_wanted =
        node.avoidance == wanted(node.failures) || (may_be_weaker && node.avoidance < wanted(node.failures));
    if (failures > 0 && !is_as_wanted) return "a node that has failed is not avoided by its failures";
  }
  if (counted > 0 && !has_failed) return "a failure of a node is counted without a failure";
  const bool is_restart = is.restarts.total != was.restarts.total;
  if (is_restart && counted > std::max(limit, 1)) return "a restart counts more than its root cause";
  return "";
}

std::string check_waiting_pods(const SimCluster& cluster) {
  const Job& job = cluster.job();
  if (job.metadata.deletion_timestamp || is_terminal(job.status.phase)) return "";
  const std::chrono::seconds limit(job.spec.scheduling.pending_timeout_seconds.value_or(60));
  for (const auto& [name, pod] : cluster.pods()) {
    const std::optional<PodIdentity> id = parse_pod_name(job, name);
    if (!pod.avoided || pod.scheduled || pod.deleting || !id || id->attempt != job.status.attempt) continue;
    if (cluster.now() - pod.created.value_or(cluster.now()) >= limit) return "a pod waits because of an avoided node";
    for (const std::string& node : pod.avoided->required) {
      const BadNode* known = find_node(job.status, node);
      if (known == nullptr || known->avoidance != NodeAvoidance::kRequired)
        return "a pod requires other nodes than those that its job avoids";
    }
  }
  return "";
}

}  // namespace oarlock::test
