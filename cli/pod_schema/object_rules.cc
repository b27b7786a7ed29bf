#include "cli/pod_schema/object_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "api/resources.h"
#include "cli/pod_schema/node_access.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

using yaml::Node;

constexpr int64_t kMaxInt32 = 2147483647;
constexpr int64_t kMaxPort = 65535;
constexpr int64_t kMaxMode = 0777;

// operator_template_test compares these tables with a real API server.
struct NumberRange {
  std::string_view type;
  std::string_view field;
  int64_t low;
  int64_t high;
};
constexpr NumberRange kRanges[] = {
    {"PodSpec", "activeDeadlineSeconds", 1, kMaxInt32},
    {"ContainerPort", "containerPort", 1, kMaxPort},
    {"ContainerPort", "hostPort", 0, kMaxPort},
    {"HTTPGetAction", "port", 1, kMaxPort},
    {"TCPSocketAction", "port", 1, kMaxPort},
    {"GRPCAction", "port", 1, kMaxPort},
    {"Probe", "initialDelaySeconds", 0, INT64_MAX},
    {"Probe", "timeoutSeconds", 0, INT64_MAX},
    {"Probe", "periodSeconds", 0, INT64_MAX},
    {"Probe", "successThreshold", 0, INT64_MAX},
    {"Probe", "failureThreshold", 0, INT64_MAX},
    {"Probe", "terminationGracePeriodSeconds", 1, INT64_MAX},
    {"PreferredSchedulingTerm", "weight", 1, 100},
    {"WeightedPodAffinityTerm", "weight", 1, 100},
    {"TopologySpreadConstraint", "maxSkew", 1, INT64_MAX},
    {"TopologySpreadConstraint", "minDomains", 1, INT64_MAX},
    {"ConfigMapVolumeSource", "defaultMode", 0, kMaxMode},
    {"SecretVolumeSource", "defaultMode", 0, kMaxMode},
    {"DownwardAPIVolumeSource", "defaultMode", 0, kMaxMode},
    {"ProjectedVolumeSource", "defaultMode", 0, kMaxMode},
    {"KeyToPath", "mode", 0, kMaxMode},
    {"DownwardAPIVolumeFile", "mode", 0, kMaxMode},
    {"ServiceAccountTokenProjection", "expirationSeconds", 600, int64_t{1} << 32},
    {"SecurityContext", "runAsUser", 0, kMaxInt32},
    {"SecurityContext", "runAsGroup", 0, kMaxInt32},
    {"PodSecurityContext", "runAsUser", 0, kMaxInt32},
    {"PodSecurityContext", "runAsGroup", 0, kMaxInt32},
    {"PodSecurityContext", "fsGroup", 0, kMaxInt32},
    {"PodSecurityContext", "supplementalGroups", 0, kMaxInt32},
    {"SleepAction", "seconds", 0, INT64_MAX},
};

// Types of which at most one of the members may be present, and without `is_optional` exactly one.
struct OneOf {
  std::string_view type;
  std::vector<std::string_view> fields;
  bool is_optional = false;
};
const std::vector<OneOf>& one_of_rules() {
  static const std::vector<OneOf> kRows = {
      {"Probe", {"exec", "httpGet", "tcpSocket", "grpc"}},
      {"LifecycleHandler", {"exec", "httpGet", "tcpSocket", "sleep"}},
      {"EnvVarSource", {"configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"}},
      {"EnvFromSource", {"configMapRef", "secretRef"}},
      {"DownwardAPIVolumeFile", {"fieldRef", "resourceFieldRef"}},
      {"VolumeProjection", {"configMap", "downwardAPI", "secret", "serviceAccountToken"}, /*is_optional=*/true},
      {"PodResourceClaim", {"resourceClaimName", "resourceClaimTemplateName"}},
      {"VolumeMount", {"subPath", "subPathExpr"}, /*is_optional=*/true},
  };
  return kRows;
}

// Checks one object.
class ObjectRules {
 public:
  ObjectRules(std::string_view type, const Node& object, const std::string& path, yaml::Problems& problems)
      : type_(type), object_(object), path_(path), problems_(problems) {}

  void check() {
    check_ranges();
    check_members();
    if (type_ == "Toleration") check_toleration();
    if (type_ == "NodeSelectorRequirement" || type_ == "LabelSelectorRequirement") check_requirement();
    if (type_ == "Container") check_probes();
    if (type_ == "Container") check_mount_propagation();
    if (type_ == "VolumeMount") check_recursion();
    if (type_ == "PodDNSConfig") check_dns_sizes();
    if (type_ == "ResourceRequirements") check_huge_pages();
    if (type_ == "DownwardAPIVolumeFile") check_container_name();
    if (type_ == "PodSpec") check_pod_spec();
    if (type_ == "SecurityContext") check_privileges();
    if (type_ == "SeccompProfile" || type_ == "AppArmorProfile") check_profile();
    if (type_ == "TopologySpreadConstraint" && is_given(object_, "minDomains") &&
        string_at(object_, "whenUnsatisfiable") == "ScheduleAnyway")
      add("minDomains", "requires whenUnsatisfiable: DoNotSchedule; leave it out");
    if (type_ == "ExecAction" && list_at(object_, "command").empty()) add("command", "is required");
    if (type_ == "NodeSelector" && is_given(object_, "nodeSelectorTerms") &&
        list_at(object_, "nodeSelectorTerms").empty())
      add("nodeSelectorTerms", "must have a term");
    for (const std::string_view key : {"matchLabelKeys", "mismatchLabelKeys"}) {
      if ((type_ == "TopologySpreadConstraint" || type_ == "PodAffinityTerm") && !list_at(object_, key).empty() &&
          !is_given(object_, "labelSelector"))
        add(key, "requires labelSelector");
    }
    if (type_ == "PersistentVolumeClaimTemplate" && !is_given(object_, "spec")) add("spec", "is required");
    if (type_ == "PersistentVolumeClaimSpec") check_claim();
  }

 private:
  // Adds a problem at a member, or at the object if it does not have the member.
  void add(std::string_view field, const std::string& message) {
    const std::optional<Node> value = object_.find(field);
    problems_.add(value ? value->mark() : object_.mark(), field.empty() ? path_ : fmt::format("{}.{}", path_, field),
                  message);
  }

  // A field may be a number or a list of numbers.
  void check_ranges() {
    for (const NumberRange& row : kRanges) {
      const std::optional<Node> value = row.type == type_ ? object_.find(row.field) : std::nullopt;
      if (!value) continue;
      std::vector<Node> nodes = value->items();
      nodes.push_back(*value);
      for (const Node& node : nodes) check_range(row, node);
    }
  }

  void check_range(const NumberRange& row, const Node& node) {
    const std::optional<int64_t> number = number_of(node);
    if (!number || (*number >= row.low && *number <= row.high)) return;
    add(row.field, row.high == INT64_MAX ? fmt::format("{} must be at least {}", *number, row.low)
                   : row.high == kMaxMode
                       ? fmt::format("{} is not a mode from 0 to 0777; in YAML 0644 is octal, and 644 is not", *number)
                       : fmt::format("{} must be from {} to {}", *number, row.low, row.high));
  }

  void check_members() {
    for (const OneOf& row : one_of_rules()) {
      if (row.type != type_) continue;
      std::vector<std::string_view> found;
      std::ranges::copy_if(row.fields, std::back_inserter(found), [&](auto field) { return is_given(object_, field); });
      if (found.empty() && !row.is_optional) add("", fmt::format("must have one of {}", fmt::join(row.fields, ", ")));
      if (found.size() > 1) add("", fmt::format("has {}; keep one of them", fmt::join(found, " and ")));
    }
  }

  void check_toleration() {
    const std::string operation = string_at(object_, "operator");
    if (operation == "Exists" && !string_at(object_, "value").empty())
      add("value", "must be left out with operator Exists, which tolerates each value; use operator Equal for one");
    if (string_at(object_, "key").empty() && operation != "Exists")
      add("operator", "must be Exists without a key, which tolerates each taint");
    if (is_given(object_, "tolerationSeconds") && string_at(object_, "effect") != "NoExecute")
      add("effect", "must be NoExecute with tolerationSeconds");
  }

  void check_requirement() {
    const std::string operation = string_at(object_, "operator");
    const size_t values = list_at(object_, "values").size();
    if ((operation == "In" || operation == "NotIn") && values == 0)
      add("values", fmt::format("is required with operator {}", operation));
    if ((operation == "Exists" || operation == "DoesNotExist") && values > 0)
      add("values", fmt::format("must be left out with operator {}", operation));
    if (type_ == "NodeSelectorRequirement" && (operation == "Gt" || operation == "Lt") && values != 1)
      add("values", fmt::format("must have one number with operator {}", operation));
  }

  void check_probes() {
    for (const std::string_view key : {"livenessProbe", "startupProbe"}) {
      const std::optional<Node> probe = object_.find(key);
      if (!probe || probe->kind() != Node::Kind::kMap) continue;
      const std::optional<int64_t> successes = number_at(*probe, "successThreshold");
      if (successes && *successes > 1) add(key, "successThreshold must be 1; only a readinessProbe can have more");
    }
    const std::optional<Node> probe = object_.find("readinessProbe");
    if (probe && probe->kind() == Node::Kind::kMap && is_given(*probe, "terminationGracePeriodSeconds"))
      add("readinessProbe", "terminationGracePeriodSeconds must be left out: this probe ends no container");
  }

  void check_mount_propagation() {
    const std::optional<Node> security = map_at(object_, "securityContext");
    if (security && boolean_at(*security, "privileged").value_or(false)) return;
    for (const Node& mount : list_at(object_, "volumeMounts")) {
      if (string_at(mount, "mountPropagation") == "Bidirectional")
        add("volumeMounts", "mountPropagation Bidirectional requires a privileged container; use HostToContainer");
    }
  }

  void check_recursion() {
    const std::string mode = string_at(object_, "recursiveReadOnly");
    if (mode.empty() || mode == "Disabled") return;
    const std::string propagation = string_at(object_, "mountPropagation");
    if (!boolean_at(object_, "readOnly").value_or(false)) add("recursiveReadOnly", "requires readOnly: true");
    if (!propagation.empty() && propagation != "None") add("recursiveReadOnly", "requires mountPropagation: None");
  }

  void check_dns_sizes() {
    constexpr std::pair<std::string_view, size_t> kMaxItems[] = {{"nameservers", 3}, {"searches", 32}};
    for (const auto& [field, limit] : kMaxItems) {
      if (const size_t size = list_at(object_, field).size(); size > limit)
        add(field, fmt::format("has {} items; the API server accepts at most {}", size, limit));
    }
  }

  void check_huge_pages() {
    constexpr std::string_view kPrefix = "hugepages-";
    for (const std::string_view key : {"limits", "requests"}) {
      const std::optional<Node> quantities = map_at(object_, key);
      for (const Node::Entry& entry : quantities ? quantities->entries() : std::vector<Node::Entry>()) {
        if (!entry.key.starts_with(kPrefix) || !api::is_quantity(entry.value.to_json())) continue;
        const nlohmann::json size = entry.key.substr(kPrefix.size());
        const double page = api::is_quantity(size) ? api::quantity_value(size) : 0;
        if (page > 0 && std::fmod(api::quantity_value(entry.value.to_json()), page) == 0) continue;
        problems_.add(entry.value.mark(), fmt::format("{}.{}.{}", path_, key, entry.key),
                      fmt::format("{} is not a multiple of the size of a page", shortened(entry.value.text())));
      }
    }
  }

  // In a variable, the container is the one that has the variable.
  void check_container_name() {
    const std::optional<Node> field = map_at(object_, "resourceFieldRef");
    if (field && string_at(*field, "containerName").empty())
      add("resourceFieldRef", "must have containerName: a volume belongs to all containers");
  }

  void check_pod_spec() {
    if (!list_at(object_, "ephemeralContainers").empty())
      add("ephemeralContainers", "must be left out; kubectl debug adds them to running pods");
    const std::optional<Node> dns = map_at(object_, "dnsConfig");
    if (string_at(object_, "dnsPolicy") == "None" && (!dns || list_at(*dns, "nameservers").empty()))
      add("dnsPolicy", "None requires dnsConfig.nameservers");
    if (boolean_at(object_, "hostPID").value_or(false) && boolean_at(object_, "shareProcessNamespace").value_or(false))
      add("shareProcessNamespace", "cannot be true with hostPID; keep one of them");
    check_user_namespace();
    check_sysctls();
    check_sleeps();
    check_claims_of_containers();
    check_pod_resources();
    check_init_containers();
    std::vector<std::pair<std::string, std::string>> seen;
    const std::optional<Node> constraints = object_.find("topologySpreadConstraints");
    for (const Node& one : constraints ? constraints->items() : std::vector<Node>()) {
      if (one.kind() != Node::Kind::kMap) continue;
      std::pair<std::string, std::string> pair(string_at(one, "topologyKey"), string_at(one, "whenUnsatisfiable"));
      if (std::ranges::find(seen, pair) != seen.end())
        add("topologySpreadConstraints",
            fmt::format("'{}' with {} occurs twice; use each once", shortened(pair.first), pair.second));
      seen.push_back(std::move(pair));
    }
  }

  void check_user_namespace() {
    if (boolean_at(object_, "hostUsers").value_or(true)) return;
    for (const std::string_view key : {"hostNetwork", "hostPID", "hostIPC"}) {
      if (boolean_at(object_, key).value_or(false)) add(key, "cannot be true with hostUsers: false; keep one of them");
    }
  }

  // Sysctls of a namespace that the pod shares with its node are those of the node.
  void check_sysctls() {
    constexpr std::pair<std::string_view, std::string_view> kShared[] = {{"hostNetwork", "net."},
                                                                         {"hostIPC", "kernel.shm"},
                                                                         {"hostIPC", "kernel.msg"},
                                                                         {"hostIPC", "kernel.sem"},
                                                                         {"hostIPC", "fs.mqueue."}};
    const std::optional<Node> security = map_at(object_, "securityContext");
    for (const Node& sysctl : security ? list_at(*security, "sysctls") : std::vector<Node>()) {
      const std::string name = string_at(sysctl, "name");
      for (const auto& [key, prefix] : kShared) {
        if (name.starts_with(prefix) && boolean_at(object_, key).value_or(false))
          add("securityContext", fmt::format("sysctl '{}' cannot be set with {}", shortened(name), key));
      }
    }
  }

  // The kubelet ends a container that sleeps for longer than the grace period.
  void check_sleeps() {
    constexpr int64_t kDefaultGrace = 30;  // seconds
    const int64_t given = number_at(object_, "terminationGracePeriodSeconds").value_or(kDefaultGrace);
    const int64_t grace = given < 0 ? 1 : given;  // as the API server reads it
    for (const Node& container : list_at(object_, "containers")) {
      const std::optional<Node> lifecycle = map_at(container, "lifecycle");
      for (const std::string_view key : {"postStart", "preStop"}) {
        const std::optional<Node> handler = lifecycle ? map_at(*lifecycle, key) : std::nullopt;
        const std::optional<Node> sleep = handler ? map_at(*handler, "sleep") : std::nullopt;
        const int64_t seconds = sleep ? number_at(*sleep, "seconds").value_or(0) : 0;
        if (seconds > grace)
          add("containers", fmt::format("lifecycle.{} sleeps for {} s, more than terminationGracePeriodSeconds, {}",
                                        key, seconds, grace));
      }
    }
  }

  void check_claims_of_containers() {
    std::set<std::string> known;
    for (const Node& claim : list_at(object_, "resourceClaims")) known.insert(string_at(claim, "name"));
    for (const std::string_view list : {"initContainers", "containers"}) {
      const std::vector<Node> containers = list_at(object_, list);
      for (size_t i = 0; i < containers.size(); ++i) {
        const std::optional<Node> resources = map_at(containers[i], "resources");
        for (const Node& claim : resources ? list_at(*resources, "claims") : std::vector<Node>()) {
          const std::string name = string_at(claim, "name");
          if (!name.empty() && !known.contains(name))
            problems_.add(claim.mark(), fmt::format("{}.{}[{}].resources.claims", path_, list, i),
                          fmt::format("there is no '{}' in {}.resourceClaims; add it there", shortened(name), path_));
        }
      }
    }
  }

  // Devices are requested by containers.
  void check_pod_resources() {
    const std::optional<Node> resources = map_at(object_, "resources");
    for (const std::string_view key : {"limits", "requests"}) {
      const std::optional<Node> quantities = resources ? map_at(*resources, key) : std::nullopt;
      for (const Node::Entry& entry : quantities ? quantities->entries() : std::vector<Node::Entry>()) {
        if (entry.key == "cpu" || entry.key == "memory" || entry.key.starts_with("hugepages-")) continue;
        problems_.add(entry.key_mark, fmt::format("{}.resources.{}.{}", path_, key, entry.key),
                      "a pod as a whole has cpu, memory and hugepages only; put it into the resources of a container");
      }
    }
  }

  // An init container that is not a sidecar ends before a probe could matter.
  void check_init_containers() {
    const std::optional<Node> list = object_.find("initContainers");
    const std::vector<Node> items = list ? list->items() : std::vector<Node>();
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].kind() != Node::Kind::kMap || string_at(items[i], "restartPolicy") == "Always") continue;
      for (const std::string_view key : {"lifecycle", "livenessProbe", "readinessProbe", "startupProbe"}) {
        if (!is_given(items[i], key)) continue;
        problems_.add(items[i].find(key)->mark(), fmt::format("{}.initContainers[{}].{}", path_, i, key),
                      "an init container can have it only with restartPolicy: Always, as a sidecar");
      }
    }
  }

  void check_claim() {
    if (list_at(object_, "accessModes").empty()) add("accessModes", "is required");
    const std::optional<Node> resources = map_at(object_, "resources");
    const std::optional<Node> requests = resources ? map_at(*resources, "requests") : std::nullopt;
    const std::optional<Node> storage = requests ? requests->find("storage") : std::nullopt;
    const nlohmann::json size = storage ? storage->to_json() : nlohmann::json();
    if (size.is_null()) {
      add("resources", "must request storage");
    } else if (api::is_quantity(size) && api::quantity_value(size) <= 0) {
      add("resources", "must request more than 0 of storage");
    }
    const std::vector<Node> modes = list_at(object_, "accessModes");
    if (modes.size() > 1 &&
        std::ranges::any_of(modes, [](const Node& mode) { return string_of(mode) == "ReadWriteOncePod"; }))
      add("accessModes", "cannot have another mode with ReadWriteOncePod; keep one of them");
  }

  void check_privileges() {
    if (boolean_at(object_, "allowPrivilegeEscalation").value_or(true)) return;
    if (boolean_at(object_, "privileged").value_or(false))
      add("allowPrivilegeEscalation", "cannot be false for a privileged container");
    const std::optional<Node> capabilities = object_.find("capabilities");
    const std::optional<Node> added =
        capabilities && capabilities->kind() == Node::Kind::kMap ? capabilities->find("add") : std::nullopt;
    for (const Node& one : added ? added->items() : std::vector<Node>()) {
      const std::string name = one.kind() == Node::Kind::kScalar ? one.text() : "";
      if (name == "SYS_ADMIN" || name == "CAP_SYS_ADMIN")
        add("allowPrivilegeEscalation", fmt::format("cannot be false with the capability {}", name));
    }
  }

  void check_profile() {
    const bool is_local = string_at(object_, "type") == "Localhost";
    if (is_local && string_at(object_, "localhostProfile").empty())
      add("localhostProfile", "is required with type Localhost");
    if (!is_local && is_given(object_, "localhostProfile"))
      add("localhostProfile", "must be left out with another type than Localhost");
  }

  std::string_view type_;
  const Node& object_;
  const std::string& path_;
  yaml::Problems& problems_;
};

}  // namespace

void check_object_rules(std::string_view type, const Node& object, const std::string& path, yaml::Problems& problems) {
  ObjectRules(type, object, path, problems).check();
}

}  // namespace oarlock::cli
