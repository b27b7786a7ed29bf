#include "cli/pod_schema/object_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cli/pod_schema/pod_rules.h"
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
  };
  return kRows;
}

struct NameField {
  std::string_view type;
  std::string_view field;
  bool allows_dots;
};
constexpr NameField kNames[] = {
    {"Container", "name", false},
    {"Volume", "name", false},
    {"PodSpec", "serviceAccountName", true},
    {"PodSpec", "priorityClassName", true},
    {"PodSpec", "runtimeClassName", true},
    {"PodSpec", "nodeName", true},
    {"PodSpec", "serviceAccount", true},
    {"PodSpec", "hostnameOverride", true},
    {"SecretKeySelector", "name", true},
    {"ConfigMapKeySelector", "name", true},
    {"SecretEnvSource", "name", true},
    {"ConfigMapEnvSource", "name", true},
    {"PersistentVolumeClaimSpec", "storageClassName", true},
    {"PersistentVolumeClaimSpec", "volumeAttributesClassName", true},
};

// Keys of labels. The API server does not check TopologySpreadConstraint.topologyKey.
constexpr std::pair<std::string_view, std::string_view> kLabelKeys[] = {
    {"Toleration", "key"},
    {"NodeSelectorRequirement", "key"},
    {"LabelSelectorRequirement", "key"},
    {"PodAffinityTerm", "topologyKey"},
};

// Keys of Secrets and ConfigMaps.
constexpr std::pair<std::string_view, std::string_view> kDataKeys[] = {
    {"SecretKeySelector", "key"},
    {"ConfigMapKeySelector", "key"},
};

// Fields of a pod that variables and files can have, in addition to single labels and annotations.
constexpr std::string_view kFieldPaths[] = {
    "metadata.name",           "metadata.namespace", "metadata.uid",        "spec.nodeName",
    "spec.serviceAccountName", "status.hostIP",      "status.hostIPs",      "status.podIP",
    "status.podIPs",           "metadata.labels",    "metadata.annotations"};

bool is_data_key(const std::string& text) {
  return text.size() <= 253 && text != "." && text != ".." && std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

// Paths inside a volume: relative, and without "..".
constexpr std::pair<std::string_view, std::string_view> kRelativePaths[] = {
    {"VolumeMount", "subPath"},
    {"VolumeMount", "subPathExpr"},
    {"KeyToPath", "path"},
    {"DownwardAPIVolumeFile", "path"},
    {"ServiceAccountTokenProjection", "path"},
};
// Other paths without "..".
constexpr std::pair<std::string_view, std::string_view> kPathsWithoutParent[] = {
    {"HostPathVolumeSource", "path"},
    {"NFSVolumeSource", "path"},
};

bool is_given(const Node& object, std::string_view key) {
  const std::optional<Node> value = object.find(key);
  return value && value->kind() != Node::Kind::kNull;
}

std::string string_at(const Node& object, std::string_view key) {
  const std::optional<Node> value = object.find(key);
  return value && value->kind() == Node::Kind::kScalar && value->value().is_string() ? value->text() : "";
}

std::optional<int64_t> number_at(const Node& object, std::string_view key) {
  const std::optional<Node> value = object.find(key);
  if (!value || value->kind() != Node::Kind::kScalar) return std::nullopt;
  const nlohmann::json number = value->value();
  return number.is_number_integer() ? std::optional(number.get<int64_t>()) : std::nullopt;
}

std::optional<bool> boolean_at(const Node& object, std::string_view key) {
  const std::optional<Node> value = object.find(key);
  if (!value || value->kind() != Node::Kind::kScalar || !value->value().is_boolean()) return std::nullopt;
  return value->value().get<bool>();
}

size_t size_of_list(const Node& object, std::string_view key) {
  const std::optional<Node> value = object.find(key);
  return value ? value->items().size() : 0;
}

// Checks one object.
class ObjectRules {
 public:
  ObjectRules(std::string_view type, const Node& object, const std::string& path, yaml::Problems& problems)
      : type_(type), object_(object), path_(path), problems_(problems) {}

  void check() {
    check_ranges();
    check_members();
    check_names();
    check_keys();
    check_paths();
    if (type_ == "Toleration") check_toleration();
    if (type_ == "NodeSelectorRequirement" || type_ == "LabelSelectorRequirement") check_requirement();
    if (type_ == "Container") check_probes();
    if (type_ == "PodSpec") check_pod_spec();
    if (type_ == "SecurityContext") check_privileges();
    if (type_ == "SeccompProfile" || type_ == "AppArmorProfile") check_profile();
    if (type_ == "TopologySpreadConstraint" && is_given(object_, "minDomains") &&
        string_at(object_, "whenUnsatisfiable") == "ScheduleAnyway")
      add("minDomains", "requires whenUnsatisfiable: DoNotSchedule; leave it out");
    if (type_ == "ExecAction" && size_of_list(object_, "command") == 0) add("command", "is required");
    if (type_ == "NodeSelector" && is_given(object_, "nodeSelectorTerms") &&
        size_of_list(object_, "nodeSelectorTerms") == 0)
      add("nodeSelectorTerms", "must have a term");
    if (type_ == "EnvVar" && string_at(object_, "name").find('=') != std::string::npos)
      add("name", "must not contain '='");
    if (type_ == "ContainerPort") check_port_name();
    if (type_ == "TopologySpreadConstraint" && size_of_list(object_, "matchLabelKeys") > 0 &&
        !is_given(object_, "labelSelector"))
      add("matchLabelKeys", "requires labelSelector");
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

  void check_ranges() {
    for (const NumberRange& row : kRanges) {
      if (row.type != type_) continue;
      const std::optional<int64_t> number = number_at(object_, row.field);
      if (!number || (*number >= row.low && *number <= row.high)) continue;
      add(row.field,
          row.high == INT64_MAX ? fmt::format("{} must be at least {}", *number, row.low)
          : row.high == kMaxMode
              ? fmt::format("{} is not a mode from 0 to 0777; in YAML 0644 is octal, and 644 is not", *number)
              : fmt::format("{} must be from {} to {}", *number, row.low, row.high));
    }
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

  void check_names() {
    for (const NameField& row : kNames) {
      const std::string name = row.type == type_ ? string_at(object_, row.field) : "";
      if (name.empty() || is_object_name(name, row.allows_dots)) continue;
      add(row.field, fmt::format("'{}' cannot be a name: names have at most {} characters, a-z, 0-9{} and '-' only, "
                                 "with a letter or digit at both ends",
                                 shortened(name), row.allows_dots ? 253 : 63, row.allows_dots ? ", '.'" : ""));
    }
  }

  void check_keys() {
    for (const auto& [type, field] : kLabelKeys) {
      const std::string key = type == type_ ? string_at(object_, field) : "";
      if (!key.empty() && !is_label_key(key))
        add(field, fmt::format("'{}' cannot be the key of a label", shortened(key)));
    }
    for (const auto& [type, field] : kDataKeys) {
      const std::string key = type == type_ ? string_at(object_, field) : "";
      if (!is_data_key(key))
        add(field,
            fmt::format("'{}' cannot be a key: keys have letters, digits, '-', '_' and '.' only", shortened(key)));
    }
    if (type_ != "ObjectFieldSelector") return;
    const std::string path = string_at(object_, "fieldPath");
    const bool is_entry = path.starts_with("metadata.labels['") || path.starts_with("metadata.annotations['");
    if (!path.empty() && !is_entry && std::ranges::find(kFieldPaths, path) == std::end(kFieldPaths))
      add("fieldPath", fmt::format("'{}' is not one of {}", shortened(path), fmt::join(kFieldPaths, ", ")));
  }

  void check_paths() {
    const auto has_parent = [](const std::string& text) {
      return ("/" + text + "/").find("/../") != std::string::npos;
    };
    for (const auto& [type, field] : kRelativePaths) {
      const std::string text = type == type_ ? string_at(object_, field) : "";
      if (text.starts_with('/')) add(field, fmt::format("'{}' must be relative to the volume", shortened(text)));
      if (has_parent(text)) add(field, fmt::format("'{}' must not contain '..'", shortened(text)));
    }
    for (const auto& [type, field] : kPathsWithoutParent) {
      const std::string text = type == type_ ? string_at(object_, field) : "";
      if (has_parent(text)) add(field, fmt::format("'{}' must not contain '..'", shortened(text)));
    }
    if (type_ == "NFSVolumeSource" && !string_at(object_, "path").empty() &&
        !string_at(object_, "path").starts_with('/'))
      add("path", fmt::format("'{}' must be absolute", shortened(string_at(object_, "path"))));
    if (type_ == "VolumeMount" && is_given(object_, "subPath") && is_given(object_, "subPathExpr") &&
        !string_at(object_, "subPath").empty() && !string_at(object_, "subPathExpr").empty())
      add("", "has subPath and subPathExpr; keep one of them");
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
    const size_t values = size_of_list(object_, "values");
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

  void check_pod_spec() {
    if (size_of_list(object_, "ephemeralContainers") > 0)
      add("ephemeralContainers", "must be left out; kubectl debug adds them to running pods");
    const std::optional<Node> dns = object_.find("dnsConfig");
    const bool has_server = dns && dns->kind() == Node::Kind::kMap && size_of_list(*dns, "nameservers") > 0;
    if (string_at(object_, "dnsPolicy") == "None" && !has_server)
      add("dnsPolicy", "None requires dnsConfig.nameservers");
    if (boolean_at(object_, "hostPID").value_or(false) && boolean_at(object_, "shareProcessNamespace").value_or(false))
      add("shareProcessNamespace", "cannot be true with hostPID; keep one of them");
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
    if (size_of_list(object_, "accessModes") == 0) add("accessModes", "is required");
    const std::optional<Node> resources = object_.find("resources");
    const std::optional<Node> requests =
        resources && resources->kind() == Node::Kind::kMap ? resources->find("requests") : std::nullopt;
    if (!requests || requests->kind() != Node::Kind::kMap || !is_given(*requests, "storage"))
      add("resources", "must request storage");
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

  void check_port_name() {
    const std::string name = string_at(object_, "name");
    const bool has_letter = std::ranges::any_of(name, [](char c) { return c >= 'a' && c <= 'z'; });
    if (name.empty() ||
        (name.size() <= 15 && has_letter && is_object_name(name, false) && name.find("--") == std::string::npos))
      return;
    add("name", fmt::format("'{}' cannot be the name of a port: at most 15 characters, a-z, 0-9 and single '-', with a "
                            "letter",
                            shortened(name)));
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
