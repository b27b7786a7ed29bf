#include "operator/core/bad_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/rules.h"
#include "common/error.h"
#include "common/json_access.h"
#include "common/text.h"
#include "operator/core/placement.h"

namespace oarlock::control {
namespace {

using api::BadNode;
using api::NodeAvoidance;
using Json = nlohmann::json;
using std::chrono::seconds;

constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";
constexpr char kTerms[] = "nodeSelectorTerms";
constexpr int kWeight = 100;            // the highest one that Kubernetes accepts
constexpr size_t kMaxExclusions = 128;  // in the required affinity of a pod; beyond it, other nodes are only preferred

// How long all pods have run when a restart in them is blamed on a node: after the loss of a pod, the others end, too,
// and launchers report the first of them.
constexpr seconds kUndisturbedTime{120};

constexpr std::string_view kRequiredName = "Required";
constexpr std::string_view kPreferredName = "Preferred";

// The reason of an entry whose last failure a launcher reported.
constexpr char kRestartedInPods[] = "RestartedInPods";

// In lower case: the messages of NVIDIA's driver and libraries, and of CUDA.
constexpr std::string_view kHardwareMessages[] = {
    "nvrm: xid",             // of the kernel module; the number of the error follows
    "uncorrectable ecc",     // of CUDA and nvidia-smi
    "uncorrectable nvlink",  // CUDA error: uncorrectable NVLink error detected
    "nvlink error",
    "fallen off the bus",
    "gpu is lost",
    "device-side hardware",
};

// ---- Failures of nodes ---------------------------------------------------------------------------------------------

// Whether the kubelet has rejected the pod because of a property of its node.
bool is_rejected_by_node(const Pod& pod) {
  constexpr std::string_view kReasons[] = {"UnexpectedAdmissionError", "TopologyAffinityError"};
  return is_rejected(pod) &&
         (pod.reason.starts_with("OutOf") || std::ranges::find(kReasons, pod.reason) != std::end(kReasons));
}

bool blames_node(const PodFailure& failure) {
  if (failure.pod == nullptr) return false;
  if (failure.cause == FailureCause::kRemoved) return is_rejected_by_node(*failure.pod);
  if (failure.cause != FailureCause::kExit) return false;
  return failure.action == api::FailureAction::kRestart || is_hardware_failure(failure);
}

struct NodeFailure {
  std::string node;
  std::string reason;
  bool is_hardware = false;
};

NodeAvoidance avoidance_after(int failures, int limit) {
  return failures >= limit ? NodeAvoidance::kRequired : NodeAvoidance::kPreferred;
}

// The entry of the node becomes the last one. An avoidance that has become weaker, because pods could not be placed,
// remains so: otherwise, each restart on the only node would wait again.
void add_failure(const api::FailurePolicy& policy, const NodeFailure& failure, SystemTime now, api::Status& status) {
  const int limit = policy.avoid_nodes_after;
  if (limit <= 0 || failure.node.empty()) return;
  std::vector<BadNode>& nodes = status.bad_nodes;
  const auto known = std::ranges::find(nodes, failure.node, &BadNode::name);
  BadNode node;
  node.name = failure.node;
  bool is_relaxed = false;
  if (known != nodes.end()) {
    node = std::move(*known);
    nodes.erase(known);
    is_relaxed = node.avoidance < avoidance_after(node.failures, limit);
  }
  increment(node.failures);
  if (failure.is_hardware) node.failures = std::max(node.failures, limit);
  node.last_time = std::chrono::floor<seconds>(now);
  node.reason = failure.reason;
  if (!is_relaxed) node.avoidance = avoidance_after(node.failures, limit);
  nodes.push_back(std::move(node));
  if (nodes.size() > api::kMaxBadNodes) nodes.erase(nodes.begin());
}

// ---- Avoidance -----------------------------------------------------------------------------------------------------

SystemTime expiry_of(const BadNode& node, const api::FailurePolicy& policy, SystemTime now) {
  if (policy.avoid_nodes_after <= 0) return now;
  return end_of_delay(node.last_time, clamp_period(policy.avoid_nodes_seconds), now);
}

bool is_expired(const BadNode& node, const api::FailurePolicy& policy, SystemTime now) {
  return expiry_of(node, policy, now) <= now;
}

// A pod with a nominated node has found room, and waits only for the grace period of the pods that it has preempted.
bool is_avoiding(const Pod* pod) {
  return pod != nullptr && pod->avoided && !pod->nominated && !has_node(*pod) && pod->node_name.empty() &&
         !pod->deleting && !has_ended(*pod);
}

SystemTime relaxation_time(const Observed& observed, const Pod& pod) {
  const seconds limit = std::min(kAvoidanceTime, pending_timeout(observed).value_or(kAvoidanceTime));
  return end_of_delay(pod.created.value_or(SystemTime::min()), limit, observed.now);
}

// Returns when pods that the API server refuses, perhaps because of their affinity, are created without one; absent if
// it refuses none.
std::optional<SystemTime> refusal_time(const Observed& observed, const Membership& members) {
  const std::optional<SystemTime>& begin = observed.job.status.attempt_start_time;
  if (!begin || observed.last_error.empty() || !has_missing_pods(members)) return std::nullopt;
  return end_of_delay(*begin, kAvoidanceTime, observed.now);
}

NodeAvoidance avoidance_of(const std::vector<BadNode>& nodes, const std::string& name) {
  const auto found = std::ranges::find(nodes, name, &BadNode::name);
  return found == nodes.end() ? NodeAvoidance::kNone : found->avoidance;
}

bool is_stronger(const AvoidedNodes& pod, const std::vector<BadNode>& nodes) {
  const auto is_below = [&](NodeAvoidance level) {
    return [&nodes, level](const std::string& name) { return avoidance_of(nodes, name) < level; };
  };
  return std::ranges::any_of(pod.required, is_below(NodeAvoidance::kRequired)) ||
         std::ranges::any_of(pod.preferred, is_below(NodeAvoidance::kPreferred));
}

// Nodes that a pod must not use become ones that it should not use, and if there are none, these become usable. The
// entry may be stronger than the pod's list, because the node has failed again, or Kueue selects the nodes.
void relax(const AvoidedNodes& pod, std::vector<BadNode>& nodes) {
  const bool is_required = !pod.required.empty();
  const NodeAvoidance to = is_required ? NodeAvoidance::kPreferred : NodeAvoidance::kNone;
  for (const std::string& name : is_required ? pod.required : pod.preferred) {
    const auto found = std::ranges::find(nodes, name, &BadNode::name);
    if (found != nodes.end()) found->avoidance = std::min(found->avoidance, to);
  }
}

// ---- Affinity ------------------------------------------------------------------------------------------------------

// Requirements that exclude the nodes by their names. The API server accepts one name in each. The operator does not
// read nodes, so that it does not know their label kubernetes.io/hostname, which may differ from the name.
Json exclusions(const std::vector<std::string>& nodes) {
  Json out = Json::array();
  for (const std::string& node : nodes)
    out.push_back({{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", Json::array({node})}});
  return out;
}

bool is_other(const Json& value, Json::value_t type) { return !value.is_null() && value.type() != type; }

// Whether nothing can be added to the affinity, because a part has another type; the API server reports it.
bool has_malformed_node_affinity(const Json& spec) {
  const Json& affinity = member(spec, "affinity");
  const Json& of_nodes = member(affinity, "nodeAffinity");
  const Json& required = member(of_nodes, kRequired);
  if (is_other(affinity, Json::value_t::object) || is_other(of_nodes, Json::value_t::object)) return true;
  if (is_other(member(of_nodes, kPreferred), Json::value_t::array)) return true;
  return is_other(required, Json::value_t::object) || (required.is_object() && elements(required, kTerms).empty());
}

// The affinity of the template has each exclusion once for each of its terms.
bool is_too_large(const Json& spec, const AvoidedNodes& nodes) {
  const Json& of_nodes = member(member(spec, "affinity"), "nodeAffinity");
  return nodes.required.size() * elements(member(of_nodes, kRequired), kTerms).size() > kMaxExclusions;
}

// A node must match one of the terms of the template, so that each of them excludes the nodes. A term without
// requirements matches no node, and keeps this meaning.
void require_others(const std::vector<std::string>& nodes, Json& affinity) {
  Json& required = affinity[kRequired];
  if (required.is_null()) {
    required = {{kTerms, Json::array({{{"matchFields", exclusions(nodes)}}})}};
    return;
  }
  for (Json& term : required[kTerms]) {
    if (elements(term, "matchExpressions").empty() && elements(term, "matchFields").empty()) continue;
    for (Json& exclusion : exclusions(nodes)) list_in(term, "matchFields").push_back(std::move(exclusion));
  }
}

}  // namespace

bool mentions_hardware(std::string_view message) {
  std::string lower(message);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::any_of(kHardwareMessages,
                             [&](std::string_view one) { return lower.find(one) != std::string::npos; });
}

bool is_hardware_failure(const PodFailure& failure) {
  if (failure.cause != FailureCause::kExit) return false;
  const Termination& end = *failure.pod->trainer;
  // The codes of an init container have no defined meaning.
  const bool is_reported = end.init_container.empty() && end.exit_code == to_int(ExitCode::kDeviceFailed);
  return is_reported || mentions_hardware(end.message);
}

void record_node_failures(const api::FailurePolicy& policy, const std::vector<PodFailure>& failures, SystemTime now,
                          api::Status& status) {
  for (const PodFailure& failure : failures) {
    if (!blames_node(failure)) continue;
    const std::string& node = failure.named_node ? *failure.named_node : failure.pod->node_name;
    // A launcher may be silent because its container runs something else first.
    const bool is_hardware = is_hardware_failure(failure) && !failure.named_node;
    add_failure(policy, {node, failure.record.reason, is_hardware}, now, status);
  }
}

void record_in_pod_failure(const Observed& observed, const Membership& members, api::Status& status) {
  const auto has_run = [&](const Pod* pod) {
    return pod != nullptr && pod->phase == PodPhase::kRunning && !pod->deleting && pod->started_at &&
           *pod->started_at + kUndisturbedTime <= observed.now;
  };
  if (!status.replacements.empty() || !std::ranges::all_of(members.current, has_run)) return;
  const auto& before = observed.job.status.in_pod_restarts;
  const auto& restarts = status.in_pod_restarts;
  if (!restarts || restarts->attempt != status.attempt || !restarts->last_rank) return;
  if (restarts->total <= (before ? before->total : 0)) return;
  const int node_rank = *restarts->last_rank / std::max(observed.job.spec.processes_per_node, 1);
  if (node_rank < 0 || static_cast<size_t>(node_rank) >= members.current.size()) return;
  add_failure(observed.job.spec.failure_policy,
              {members.current[static_cast<size_t>(node_rank)]->node_name, kRestartedInPods,
               mentions_hardware(restarts->last_reason)},
              observed.now, status);
}

bool has_avoiding_pods(const Membership& members) { return std::ranges::any_of(members.current, is_avoiding); }

std::optional<SystemTime> next_avoidance_change(const Observed& observed, const Membership& members) {
  std::optional<SystemTime> first;
  const auto add = [&](SystemTime time) {
    if (time > observed.now) first = std::min(first.value_or(time), time);
  };
  const bool is_complete = !has_missing_pods(members);
  for (const Pod* pod : members.current) {
    if (is_complete && is_avoiding(pod)) add(relaxation_time(observed, *pod));
  }
  if (const auto refused = refusal_time(observed, members)) add(*refused);
  for (const BadNode& node : observed.job.status.bad_nodes)
    add(expiry_of(node, observed.job.spec.failure_policy, observed.now));
  return first;
}

void refresh_bad_nodes(const Observed& observed, const Membership& members, api::Status& status) {
  if (status.phase == api::Phase::kSuspended) return;
  const api::FailurePolicy& policy = observed.job.spec.failure_policy;
  const std::vector<BadNode> before = status.bad_nodes;
  std::erase_if(status.bad_nodes, [&](const BadNode& node) { return is_expired(node, policy, observed.now); });
  if (const auto refused = refusal_time(observed, members); refused && *refused <= observed.now) {
    for (BadNode& node : status.bad_nodes) node.avoidance = NodeAvoidance::kNone;
  }
  // Until all pods exist, a scheduler may wait for the others.
  const bool is_complete = !has_missing_pods(members);
  for (const Pod* pod : members.current) {
    if (is_complete && is_avoiding(pod) && relaxation_time(observed, *pod) <= observed.now)
      relax(*pod->avoided, status.bad_nodes);
  }
  if (status.bad_nodes == before) return;
  if (status.elastic) status.elastic->waiting_since.reset();
  for (api::Replacement& replacement : status.replacements) {
    const auto rank = static_cast<size_t>(replacement.node_rank);
    const bool is_current = replacement.attempt == status.attempt && rank < members.current.size();
    if (is_current && is_avoiding(members.current[rank])) replacement.time = std::chrono::floor<seconds>(observed.now);
  }
}

BoxedOptional<AvoidedNodes> avoided_nodes(const Job& job, const std::optional<Admission>& admission, SystemTime now) {
  const bool is_placed_by_kueue = admission && admission->has_topology;
  AvoidedNodes out;
  for (const BadNode& node : job.status.bad_nodes) {
    if (node.avoidance == NodeAvoidance::kNone || is_expired(node, job.spec.failure_policy, now)) continue;
    const bool is_required = node.avoidance == NodeAvoidance::kRequired && !is_placed_by_kueue;
    (is_required ? out.required : out.preferred).push_back(node.name);
  }
  if (out == AvoidedNodes{}) return std::nullopt;
  return out;
}

std::vector<Action> delete_outdated_pods(const api::Status& status, const Membership& members) {
  std::vector<Action> out;
  for (const Pod* pod : members.current) {
    if (!is_avoiding(pod) || !is_stronger(*pod->avoided, status.bad_nodes)) continue;
    out.emplace_back(DeletePod{pod->name, pod->uid, pod->resource_version,
                               "it waits for other nodes than those that its job avoids now"});
  }
  return out;
}

std::vector<Action> bad_node_events(const api::Status& before, const api::Status& next) {
  std::vector<Action> out;
  for (const BadNode& node : next.bad_nodes) {
    const NodeAvoidance was = avoidance_of(before.bad_nodes, node.name);
    if (node.avoidance == was) continue;
    const bool is_required = node.avoidance == NodeAvoidance::kRequired;
    if (node.avoidance > was) {
      out.emplace_back(make_event(
          EmitEvent::Type::kWarning, "AvoidingNode", "AvoidNode",
          fmt::format("{} on node {}, the last one {}: pods that are created now {} other nodes",
                      counted(node.failures, "failure"), node.name, node.reason, is_required ? "require" : "prefer")));
    } else {
      out.emplace_back(make_event(
          EmitEvent::Type::kWarning, "NodeAvoidanceRelaxed", "RecreatePods",
          fmt::format("pods that avoid node {} were not placed in time: {}", node.name,
                      node.avoidance == NodeAvoidance::kPreferred ? "they prefer other nodes, and may run on it"
                                                                  : "it is not avoided any more")));
    }
  }
  return out;
}

std::string to_annotation(const AvoidedNodes& nodes) {
  std::string out;
  const auto add = [&out](const std::string& node, std::string_view avoidance) {
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", node, avoidance);
  };
  for (const std::string& node : nodes.required) add(node, kRequiredName);
  for (const std::string& node : nodes.preferred) add(node, kPreferredName);
  return out;
}

BoxedOptional<AvoidedNodes> parse_avoided_nodes(std::string_view annotation) {
  AvoidedNodes out;
  for (size_t count = 0; !annotation.empty() && count < api::kMaxBadNodes; ++count) {
    const std::string_view item = annotation.substr(0, annotation.find(','));
    annotation.remove_prefix(std::min(annotation.size(), item.size() + 1));
    const size_t sign = item.find('=');
    if (sign == std::string_view::npos || sign == 0 || sign > api::rules::kMaxObjectName) continue;
    const std::string_view avoidance = item.substr(sign + 1);
    if (avoidance == kRequiredName) out.required.emplace_back(item.substr(0, sign));
    if (avoidance == kPreferredName) out.preferred.emplace_back(item.substr(0, sign));
  }
  if (out == AvoidedNodes{}) return std::nullopt;
  return out;
}

bool changes_template(const Job& job, const BoxedOptional<AvoidedNodes>& nodes) {
  return nodes || job.spec.pod_template.find(kAnnotationAvoidedNodes) != std::string::npos;
}

Job with_avoided_nodes(const Job& job, const BoxedOptional<AvoidedNodes>& nodes) {
  Json pod = Json::parse(job.spec.pod_template, nullptr, false);
  if (!pod.is_object()) pod = Json::object();
  Json& annotations = map_in(map_in(pod, "metadata"), "annotations");
  annotations.erase(kAnnotationAvoidedNodes);
  const Json& spec = member(pod, "spec");
  // No scheduler places a pod with a nodeName, and the kubelet would reject it.
  if (nodes && !has_malformed_node_affinity(spec) && text_at(spec, "nodeName").empty()) {
    AvoidedNodes avoided = *nodes;
    if (is_too_large(spec, avoided)) {
      avoided.preferred.insert(avoided.preferred.end(), avoided.required.begin(), avoided.required.end());
      avoided.required.clear();
    }
    annotations[kAnnotationAvoidedNodes] = to_annotation(avoided);
    Json& affinity = map_in(map_in(map_in(pod, "spec"), "affinity"), "nodeAffinity");
    if (!avoided.required.empty()) require_others(avoided.required, affinity);
    if (!avoided.preferred.empty()) {
      list_in(affinity, kPreferred)
          .push_back({{"weight", kWeight}, {"preference", {{"matchFields", exclusions(avoided.preferred)}}}});
    }
  }
  Job out = job;
  out.spec.pod_template = dump_json(pod);
  return out;
}

}  // namespace oarlock::control
