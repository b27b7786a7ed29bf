#include "cli/pod_schema/value_rules.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <regex>
#include <set>
#include <vector>

#include "cli/pod_schema/node_access.h"
#include "cli/pod_schema/pod_rules.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

using yaml::Node;

bool is_label_name(const std::string& text) { return is_object_name(text, false); }
bool is_subdomain(const std::string& text) { return is_object_name(text, true); }

bool is_driver_name(const std::string& text) {
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return text.size() <= 63 && is_subdomain(lower);
}

bool is_search_domain(const std::string& text) {
  std::string domain = text;
  std::ranges::replace(domain, '_', 'a');
  if (domain.ends_with('.')) domain.pop_back();
  return text == "." || is_subdomain(domain);
}

bool is_address(const std::string& text) {
  in6_addr address{};
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1 || ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

bool is_variable_name(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~' && c != '='; });
}

bool is_data_key(const std::string& text) {
  return text.size() <= 253 && text != "." && text != ".." && std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

bool is_port_name(const std::string& text) {
  return text.size() <= 15 && std::ranges::any_of(text, [](char c) { return c >= 'a' && c <= 'z'; }) &&
         is_label_name(text) && text.find("--") == std::string::npos;
}

bool is_header_name(const std::string& text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
}

bool is_sysctl(const std::string& text) {
  static const std::regex kForm("([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?");
  return text.size() <= 253 && std::regex_match(text, kForm);
}

bool is_one_of(const std::string& text, std::initializer_list<std::string_view> choices) {
  return std::ranges::find(choices, text) != choices.end();
}

bool is_access_mode(const std::string& text) {
  return is_one_of(text, {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"});
}

bool is_resizable(const std::string& text) { return is_one_of(text, {"cpu", "memory"}); }

bool is_resource_field(const std::string& text) {
  const std::string name = text.substr(text.find('.') + 1);
  return (text.starts_with("limits.") || text.starts_with("requests.")) &&
         (is_one_of(name, {"cpu", "memory", "ephemeral-storage"}) || name.starts_with("hugepages-"));
}

// A field whose value is a string, or a list of strings, of one form. operator_template_test compares this table with a
// real API server.
struct StringForm {
  std::string_view type;
  std::string_view field;
  bool (*is_valid)(const std::string&);
  std::string_view form;  // "'VALUE' cannot be " precedes it
};

constexpr char kLabelName[] =
    "a name: names have at most 63 characters, a-z, 0-9 and '-' only, with a letter or digit at both ends";
constexpr char kObjectName[] =
    "a name: names have at most 253 characters, a-z, 0-9, '.' and '-' only, with a letter or digit at both ends";
constexpr char kLabelKey[] = "the key of a label";
constexpr char kLabelValue[] = "the value of a label: at most 63 letters, digits, '-', '_' and '.'";
constexpr char kDataKey[] = "a key: keys have letters, digits, '-', '_' and '.' only";
constexpr char kPortName[] =
    "the name of a port: at most 15 characters, a-z, 0-9 and single '-', with a letter; a number has no quotes";
constexpr char kVariableName[] = "the name of a variable: it must not contain '=', and be printable ASCII";
constexpr char kAddress[] = "an IP address";

constexpr StringForm kStringForms[] = {
    {"Container", "name", is_label_name, kLabelName},
    {"Volume", "name", is_label_name, kLabelName},
    {"PodResourceClaim", "name", is_label_name, kLabelName},
    {"PodAffinityTerm", "namespaces", is_label_name, kLabelName},
    {"PodSpec", "serviceAccountName", is_subdomain, kObjectName},
    {"PodSpec", "priorityClassName", is_subdomain, kObjectName},
    {"PodSpec", "runtimeClassName", is_subdomain, kObjectName},
    {"PodSpec", "nodeName", is_subdomain, kObjectName},
    {"PodSpec", "serviceAccount", is_subdomain, kObjectName},
    {"PodSpec", "hostnameOverride", is_subdomain, kObjectName},
    {"PodResourceClaim", "resourceClaimName", is_subdomain, kObjectName},
    {"PodResourceClaim", "resourceClaimTemplateName", is_subdomain, kObjectName},
    {"SecretKeySelector", "name", is_subdomain, kObjectName},
    {"ConfigMapKeySelector", "name", is_subdomain, kObjectName},
    {"SecretEnvSource", "name", is_subdomain, kObjectName},
    {"ConfigMapEnvSource", "name", is_subdomain, kObjectName},
    {"PersistentVolumeClaimSpec", "storageClassName", is_subdomain, kObjectName},
    {"PersistentVolumeClaimSpec", "volumeAttributesClassName", is_subdomain, kObjectName},
    {"HostAlias", "hostnames", is_subdomain, kObjectName},
    {"CSIVolumeSource", "driver", is_driver_name, kLabelName},
    // The API server does not check TopologySpreadConstraint.topologyKey.
    {"Toleration", "key", is_label_key, kLabelKey},
    {"NodeSelectorRequirement", "key", is_label_key, kLabelKey},
    {"LabelSelectorRequirement", "key", is_label_key, kLabelKey},
    {"PodAffinityTerm", "topologyKey", is_label_key, kLabelKey},
    {"PodAffinityTerm", "matchLabelKeys", is_label_key, kLabelKey},
    {"PodAffinityTerm", "mismatchLabelKeys", is_label_key, kLabelKey},
    {"TopologySpreadConstraint", "matchLabelKeys", is_label_key, kLabelKey},
    {"Toleration", "value", is_label_value, kLabelValue},
    {"LabelSelectorRequirement", "values", is_label_value, kLabelValue},
    {"SecretKeySelector", "key", is_data_key, kDataKey},
    {"ConfigMapKeySelector", "key", is_data_key, kDataKey},
    {"ContainerPort", "name", is_port_name, kPortName},
    {"HTTPGetAction", "port", is_port_name, kPortName},
    {"TCPSocketAction", "port", is_port_name, kPortName},
    {"HTTPHeader", "name", is_header_name, "the name of a header: letters, digits and '-'"},
    {"EnvVar", "name", is_variable_name, kVariableName},
    {"EnvFromSource", "prefix", is_variable_name, kVariableName},
    {"HostAlias", "ip", is_address, kAddress},
    {"PodDNSConfig", "nameservers", is_address, kAddress},
    {"PodDNSConfig", "searches", is_search_domain, "a domain"},
    {"PodReadinessGate", "conditionType", is_label_key, "a type of condition: its form is that of the key of a label"},
    {"PodSchedulingGate", "name", is_label_key, "the name of a gate: its form is that of the key of a label"},
    {"Sysctl", "name", is_sysctl, "the name of a sysctl, such as net.core.somaxconn"},
    {"PersistentVolumeClaimSpec", "accessModes", is_access_mode,
     "an access mode: they are ReadWriteOnce, ReadOnlyMany, ReadWriteMany and ReadWriteOncePod"},
    {"ContainerResizePolicy", "resourceName", is_resizable, "resized: only cpu and memory can"},
    {"ResourceFieldSelector", "resource", is_resource_field,
     "read: limits and requests of cpu, memory, ephemeral-storage and hugepages can, such as limits.memory"},
};

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
    {"VolumeDevice", "devicePath"},
    {"GitRepoVolumeSource", "directory"},
};

// Fields of a pod that a variable can have, and those that a file can have, in addition to single labels and
// annotations.
constexpr std::string_view kVariableFields[] = {"metadata.name",           "metadata.namespace", "metadata.uid",
                                                "spec.nodeName",           "status.hostIP",      "status.hostIPs",
                                                "spec.serviceAccountName", "status.podIP",       "status.podIPs"};
constexpr std::string_view kFileFields[] = {"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels",
                                            "metadata.annotations"};

// Returns whether a text has the form metadata.labels['KEY'], or that of an annotation.
bool is_entry_of_metadata(const std::string& text) {
  for (const std::string_view map : {"metadata.labels['", "metadata.annotations['"}) {
    if (!text.starts_with(map) || !text.ends_with("']") || text.size() < map.size() + 2) continue;
    std::string key = text.substr(map.size(), text.size() - map.size() - 2);
    std::ranges::transform(key, key.begin(), [](unsigned char c) { return std::tolower(c); });
    return is_label_key(key);
  }
  return false;
}

class ValueRules {
 public:
  ValueRules(std::string_view type, const Node& object, const std::string& path, yaml::Problems& problems)
      : type_(type), object_(object), path_(path), problems_(problems) {}

  void check() {
    for (const StringForm& row : kStringForms) {
      if (row.type == type_) check_form(row);
    }
    check_paths();
    if (type_ == "EnvVarSource") check_field_path(kVariableFields);
    if (type_ == "DownwardAPIVolumeFile") check_field_path(kFileFields);
    if (type_ == "NodeSelector") check_required_nodes();
    if (type_ == "NodeSelectorTerm") check_match_fields();
    if (type_ == "ProjectedVolumeSource") check_projected_paths();
  }

 private:
  void check_text(const Node& node, const std::string& at, bool (*is_valid)(const std::string&),
                  std::string_view form) {
    const std::string text = string_of(node);
    if (text.empty() || is_valid(text)) return;
    problems_.add(node.mark(), at, fmt::format("'{}' cannot be {}", shortened(text), form));
  }

  void check_form(const StringForm& row) {
    const std::optional<Node> value = object_.find(row.field);
    if (!value) return;
    const std::string at = fmt::format("{}.{}", path_, row.field);
    check_text(*value, at, row.is_valid, row.form);
    const std::vector<Node> items = value->items();
    for (size_t i = 0; i < items.size(); ++i)
      check_text(items[i], fmt::format("{}[{}]", at, i), row.is_valid, row.form);
  }

  void add(std::string_view field, const std::string& message) {
    const std::optional<Node> value = object_.find(field);
    problems_.add(value ? value->mark() : object_.mark(), fmt::format("{}.{}", path_, field), message);
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
    const std::string text = type_ == "NFSVolumeSource" ? string_at(object_, "path") : "";
    if (!text.empty() && !text.starts_with('/')) add("path", fmt::format("'{}' must be absolute", shortened(text)));
  }

  template <size_t kCount>
  void check_field_path(const std::string_view (&allowed)[kCount]) {
    const std::optional<Node> field = map_at(object_, "fieldRef");
    const std::string text = field ? string_at(*field, "fieldPath") : "";
    if (text.empty() || is_entry_of_metadata(text) || std::ranges::find(allowed, text) != std::end(allowed)) return;
    problems_.add(field->find("fieldPath")->mark(), fmt::format("{}.fieldRef.fieldPath", path_),
                  fmt::format("'{}' is not one of {}, metadata.labels['KEY'] and metadata.annotations['KEY']",
                              shortened(text), fmt::join(allowed, ", ")));
  }

  // Preferred terms may have other values, which no node has.
  void check_required_nodes() {
    const std::vector<Node> terms = list_at(object_, "nodeSelectorTerms");
    for (size_t i = 0; i < terms.size(); ++i) {
      const std::vector<Node> requirements = list_at(terms[i], "matchExpressions");
      for (size_t k = 0; k < requirements.size(); ++k) {
        const std::vector<Node> values = list_at(requirements[k], "values");
        for (size_t v = 0; v < values.size(); ++v)
          check_text(values[v], fmt::format("{}.nodeSelectorTerms[{}].matchExpressions[{}].values[{}]", path_, i, k, v),
                     is_label_value, kLabelValue);
      }
    }
  }

  // The only field of a node is its name.
  void check_match_fields() {
    const std::vector<Node> requirements = list_at(object_, "matchFields");
    for (size_t i = 0; i < requirements.size(); ++i) {
      const Node& one = requirements[i];
      const bool is_name = string_at(one, "key") == "metadata.name" &&
                           is_one_of(string_at(one, "operator"), {"In", "NotIn"}) && list_at(one, "values").size() == 1;
      const std::string at = fmt::format("{}.matchFields[{}]", path_, i);
      if (!is_name) problems_.add(one.mark(), at, "must have key metadata.name, operator In or NotIn, and one value");
      if (is_name) check_text(list_at(one, "values").front(), at + ".values[0]", is_subdomain, kObjectName);
    }
  }

  void check_projected_paths() {
    std::set<std::string> seen;
    for (const Node& source : list_at(object_, "sources")) {
      for (const std::string_view key : {"configMap", "secret", "downwardAPI"}) {
        const std::optional<Node> projection = map_at(source, key);
        for (const Node& item : projection ? list_at(*projection, "items") : std::vector<Node>()) {
          const std::string text = string_at(item, "path");
          if (!text.empty() && !seen.insert(text).second)
            problems_.add(item.mark(), path_ + ".sources",
                          fmt::format("path '{}' occurs twice; use each once", shortened(text)));
        }
      }
    }
  }

  std::string_view type_;
  const Node& object_;
  const std::string& path_;
  yaml::Problems& problems_;
};

}  // namespace

void check_value_rules(std::string_view type, const Node& object, const std::string& path, yaml::Problems& problems) {
  ValueRules(type, object, path, problems).check();
}

}  // namespace oarlock::cli
