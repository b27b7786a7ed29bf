#include "cli/pod_schema/pod_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <vector>

#include "api/resources.h"
#include "cli/pod_schema/node_access.h"
#include "cli/pod_schema/object_rules.h"
#include "cli/pod_schema/value_rules.h"
#include "common/contract.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

using yaml::Node;

struct RequiredFields {
  std::string_view type;
  std::vector<std::string_view> fields;
};

struct Choice {
  std::string_view type;
  std::string_view field;
  std::vector<std::string> values;
};

// operator_template_test verifies both tables with a real API server.
const std::vector<RequiredFields>& required_fields() {
  static const std::vector<RequiredFields> kRows = {
      {.type = "AppArmorProfile", .fields = {"type"}},
      {.type = "CSIVolumeSource", .fields = {"driver"}},
      {.type = "Container", .fields = {"name"}},
      {.type = "ConfigMapEnvSource", .fields = {"name"}},
      {.type = "ConfigMapProjection", .fields = {"name"}},
      {.type = "ConfigMapVolumeSource", .fields = {"name"}},
      {.type = "ContainerPort", .fields = {"containerPort"}},
      {.type = "ConfigMapKeySelector", .fields = {"name", "key"}},
      {.type = "DownwardAPIVolumeFile", .fields = {"path"}},
      {.type = "EnvVar", .fields = {"name"}},
      {.type = "EphemeralVolumeSource", .fields = {"volumeClaimTemplate"}},
      {.type = "GRPCAction", .fields = {"port"}},
      {.type = "HTTPHeader", .fields = {"name"}},
      {.type = "HostAlias", .fields = {"ip"}},
      {.type = "HTTPGetAction", .fields = {"port"}},
      {.type = "HostPathVolumeSource", .fields = {"path"}},
      {.type = "ImageVolumeSource", .fields = {"reference"}},
      {.type = "KeyToPath", .fields = {"key", "path"}},
      {.type = "LabelSelectorRequirement", .fields = {"key", "operator"}},
      {.type = "NFSVolumeSource", .fields = {"server", "path"}},
      {.type = "NodeSelector", .fields = {"nodeSelectorTerms"}},
      {.type = "NodeSelectorRequirement", .fields = {"key", "operator"}},
      {.type = "ObjectFieldSelector", .fields = {"fieldPath"}},
      {.type = "PersistentVolumeClaimVolumeSource", .fields = {"claimName"}},
      {.type = "PodAffinityTerm", .fields = {"topologyKey"}},
      {.type = "PodDNSConfigOption", .fields = {"name"}},
      {.type = "PodOS", .fields = {"name"}},
      {.type = "PodReadinessGate", .fields = {"conditionType"}},
      {.type = "PodResourceClaim", .fields = {"name"}},
      {.type = "PodSchedulingGate", .fields = {"name"}},
      {.type = "PreferredSchedulingTerm", .fields = {"weight"}},
      {.type = "ResourceClaim", .fields = {"name"}},
      {.type = "ResourceFieldSelector", .fields = {"resource"}},
      {.type = "SeccompProfile", .fields = {"type"}},
      {.type = "SecretEnvSource", .fields = {"name"}},
      {.type = "SecretProjection", .fields = {"name"}},
      {.type = "SecretKeySelector", .fields = {"name", "key"}},
      {.type = "SecretVolumeSource", .fields = {"secretName"}},
      {.type = "ServiceAccountTokenProjection", .fields = {"path"}},
      {.type = "Sysctl", .fields = {"name"}},
      {.type = "TCPSocketAction", .fields = {"port"}},
      {.type = "TopologySpreadConstraint", .fields = {"maxSkew", "topologyKey", "whenUnsatisfiable"}},
      {.type = "Volume", .fields = {"name"}},
      {.type = "VolumeDevice", .fields = {"name", "devicePath"}},
      {.type = "VolumeMount", .fields = {"name", "mountPath"}},
      {.type = "WeightedPodAffinityTerm", .fields = {"weight"}},
  };
  return kRows;
}

const std::vector<Choice>& choices() {
  static const std::vector<std::string> kPullPolicies = {"Always", "IfNotPresent", "Never"};
  static const std::vector<Choice> kRows = {
      {.type = "Container", .field = "imagePullPolicy", .values = kPullPolicies},
      {.type = "Container", .field = "restartPolicy", .values = {"Always", "OnFailure", "Never"}},
      {.type = "Container", .field = "terminationMessagePolicy", .values = {"File", "FallbackToLogsOnError"}},
      {.type = "ContainerPort", .field = "protocol", .values = {"TCP", "UDP", "SCTP"}},
      {.type = "HTTPGetAction", .field = "scheme", .values = {"HTTP", "HTTPS"}},
      {.type = "LabelSelectorRequirement", .field = "operator", .values = {"In", "NotIn", "Exists", "DoesNotExist"}},
      {.type = "NodeSelectorRequirement",
       .field = "operator",
       .values = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}},
      {.type = "PodSecurityContext", .field = "fsGroupChangePolicy", .values = {"OnRootMismatch", "Always"}},
      {.type = "PodSpec",
       .field = "dnsPolicy",
       .values = {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"}},
      {.type = "PodSpec", .field = "preemptionPolicy", .values = {"PreemptLowerPriority", "Never"}},
      {.type = "AppArmorProfile", .field = "type", .values = {"RuntimeDefault", "Localhost", "Unconfined"}},
      {.type = "ContainerResizePolicy", .field = "restartPolicy", .values = {"NotRequired", "RestartContainer"}},
      {.type = "HostPathVolumeSource",
       .field = "type",
       .values = {"DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"}},
      {.type = "ImageVolumeSource", .field = "pullPolicy", .values = kPullPolicies},
      {.type = "PersistentVolumeClaimSpec", .field = "volumeMode", .values = {"Block", "Filesystem"}},
      {.type = "PodOS", .field = "name", .values = {"linux", "windows"}},
      {.type = "PodSecurityContext", .field = "supplementalGroupsPolicy", .values = {"Merge", "Strict"}},
      {.type = "SecurityContext", .field = "procMount", .values = {"Default", "Unmasked"}},
      {.type = "SeccompProfile", .field = "type", .values = {"RuntimeDefault", "Localhost", "Unconfined"}},
      {.type = "Toleration", .field = "effect", .values = {"NoSchedule", "PreferNoSchedule", "NoExecute"}},
      {.type = "Toleration", .field = "operator", .values = {"Exists", "Equal"}},
      {.type = "TopologySpreadConstraint", .field = "nodeAffinityPolicy", .values = {"Honor", "Ignore"}},
      {.type = "TopologySpreadConstraint", .field = "nodeTaintsPolicy", .values = {"Honor", "Ignore"}},
      {.type = "VolumeMount", .field = "mountPropagation", .values = {"None", "HostToContainer", "Bidirectional"}},
      {.type = "VolumeMount", .field = "recursiveReadOnly", .values = {"Disabled", "IfPossible", "Enabled"}},
      {.type = "TopologySpreadConstraint", .field = "whenUnsatisfiable", .values = {"DoNotSchedule", "ScheduleAnyway"}},
  };
  return kRows;
}

bool has_value(const Node& object, std::string_view key) {
  const std::optional<Node> value = object.find(key);
  return value && value->kind() != Node::Kind::kNull &&
         (value->kind() != Node::Kind::kScalar || !value->text().empty());
}

void check_required(std::string_view type, const Node& object, const std::string& path, yaml::Problems& problems) {
  for (const RequiredFields& row : required_fields()) {
    if (row.type != type) continue;
    for (const std::string_view field : row.fields) {
      if (!has_value(object, field)) problems.add(object.mark(), fmt::format("{}.{}", path, field), "is required");
    }
  }
}

void check_choices(std::string_view type, const Node& object, const std::string& path, yaml::Problems& problems) {
  for (const Choice& row : choices()) {
    if (row.type != type) continue;
    const std::optional<Node> value = string_node_at(object, row.field);
    if (!value || value->text().empty() || std::ranges::find(row.values, value->text()) != row.values.end()) continue;
    const std::string near = suggest(value->text(), row.values);
    problems.add(value->mark(), fmt::format("{}.{}", path, row.field),
                 fmt::format("'{}' is not one of {}{}", shortened(value->text()), fmt::join(row.values, ", "),
                             near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
}

// Reports the items of a list whose text at `field` an earlier item has.
void check_unique(const Node& object, std::string_view list, std::string_view field, const std::string& path,
                  yaml::Problems& problems) {
  std::set<std::string> seen;
  const std::vector<Node> items = list_at(object, list);
  for (size_t i = 0; i < items.size(); ++i) {
    const std::optional<Node> value = string_node_at(items[i], field);
    if (!value || value->text().empty() || seen.insert(value->text()).second) continue;
    problems.add(value->mark(), fmt::format("{}.{}[{}].{}", path, list, i, field),
                 fmt::format("'{}' occurs twice; use each once", shortened(value->text())));
  }
}

// Containers other than 'trainer' have no default image.
void check_images(const Node& pod_spec, const std::string& path, yaml::Problems& problems) {
  for (const std::string_view list : {"initContainers", "containers"}) {
    const std::vector<Node> items = list_at(pod_spec, list);
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].kind() != Node::Kind::kMap || has_value(items[i], "image")) continue;
      if (list == "containers" && string_at(items[i], "name") == kTrainerContainer) continue;
      problems.add(items[i].mark(), fmt::format("{}.{}[{}].image", path, list, i),
                   "is required: only the container 'trainer' has a default image");
    }
  }
}

// A volume has at most one source. One without any is an emptyDir.
void check_volume_source(const Node& volume, const std::string& path, yaml::Problems& problems) {
  std::vector<std::string> sources;
  for (const Node::Entry& entry : volume.entries()) {
    if (entry.key != "name" && entry.value.kind() != Node::Kind::kNull) sources.push_back(entry.key);
  }
  if (sources.size() > 1)
    problems.add(volume.mark(), path,
                 fmt::format("has the sources {}; a volume has one, so keep one of them", fmt::join(sources, " and ")));
}

void check_variable(const Node& variable, const std::string& path, yaml::Problems& problems) {
  if (has_value(variable, "value") && has_value(variable, "valueFrom"))
    problems.add(variable.mark(), path, "has value and valueFrom; keep one of them");
}

// ---- Resources -----------------------------------------------------------------------------------------------------

// Resources of device plugins whose names resemble those of GPUs.
bool is_similar_resource(std::string_view name) { return name == "nvidia.com/pgpu" || name == "nvidia.com/vgpu"; }

// Returns why a name is not that of a resource of containers; empty if it may be one.
std::string problem_of_resource(const std::string& name) {
  static const std::vector<std::string> kCore = {"cpu", "memory", "ephemeral-storage"};
  static const std::vector<std::string> kGpus = {"nvidia.com/gpu", "amd.com/gpu"};
  const auto did_you_mean = [](const std::string& near) {
    return fmt::format("there is no such resource; did you mean '{}'?", near);
  };
  if (std::ranges::find(kCore, name) != kCore.end() || name.starts_with("hugepages-")) return "";
  if (name.find('/') != std::string::npos) {
    if (std::ranges::find(kGpus, name) != kGpus.end() || is_similar_resource(name)) return "";
    if (name == "nvidia/gpu" || name == "amd/gpu") return did_you_mean(kGpus[name == "nvidia/gpu" ? 0 : 1]);
    const auto typed = std::ranges::find_if(kGpus, [&](const auto& gpu) { return edit_distance(name, gpu) <= 1; });
    if (typed != kGpus.end()) return did_you_mean(*typed);
    return is_label_key(name) && !name.starts_with("requests.") ? "" : "cannot be the name of a resource";
  }
  for (const char* gpu : {"gpu", "gpus", "nvidia", "nvidia.com-gpu", "nvidia.com.gpu"}) {
    if (edit_distance(name, gpu) == 0) return did_you_mean(kGpus[0]);
  }
  if (const std::string near = suggest(name, kCore); !near.empty()) return did_you_mean(near);
  return "there is no such resource; the known ones are cpu, memory, ephemeral-storage, hugepages-SIZE, and those of "
         "device plugins, which have a domain, such as nvidia.com/gpu";
}

bool is_memory(std::string_view resource) { return resource == "memory" || resource == "ephemeral-storage"; }

// Reports sizes without a unit: no container can have so little memory.
void check_sizes(const Node& quantities, const std::string& path, yaml::Problems& problems) {
  for (const Node::Entry& entry : quantities.entries()) {
    if (is_memory(entry.key)) check_size(entry.value, fmt::format("{}.{}", path, entry.key), problems);
  }
}

// The API server rejects a request above the limit.
void check_requests(const Node& resources, const std::string& path, yaml::Problems& problems) {
  const std::optional<Node> limits = resources.find("limits");
  const std::optional<Node> requests = resources.find("requests");
  if (!limits || !requests) return;
  for (const Node::Entry& entry : requests->entries()) {
    const std::optional<Node> limit = limits->find(entry.key);
    if (!limit || entry.value.kind() != Node::Kind::kScalar || limit->kind() != Node::Kind::kScalar) continue;
    if (!api::is_quantity(entry.value.to_json()) || !api::is_quantity(limit->to_json())) continue;
    if (api::quantity_value(entry.value.to_json()) <= api::quantity_value(limit->to_json()) * (1 + 1e-12)) continue;
    problems.add(entry.value.mark(), fmt::format("{}.requests.{}", path, entry.key),
                 fmt::format("{} is above the limit, {}; lower it, or raise the limit", shortened(entry.value.text()),
                             shortened(limit->text())));
  }
}

// ---- Images --------------------------------------------------------------------------------------------------------

constexpr std::string_view kLowerCase = "abcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kUpperCase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kDigits = "0123456789";

std::string to_lower_case(std::string text) {
  for (char& c : text) {
    if (const size_t letter = kUpperCase.find(c); letter != std::string_view::npos) c = kLowerCase[letter];
  }
  return text;
}

bool consists_of(std::string_view text, std::initializer_list<std::string_view> allowed) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return std::ranges::any_of(allowed, [&](std::string_view set) { return set.find(c) != std::string_view::npos; });
  });
}

bool is_repository_component(std::string_view text) {
  return consists_of(text, {kLowerCase, kDigits, "._-"}) && consists_of(text.substr(0, 1), {kLowerCase, kDigits}) &&
         consists_of(text.substr(text.size() - 1), {kLowerCase, kDigits});
}

bool is_domain(std::string_view text) {
  const bool is_name = consists_of(text.substr(0, 1), {kLowerCase, kUpperCase, kDigits, "["});
  return is_name &&
         (text == "localhost" || text.find_first_of(".:") != std::string_view::npos ||
          text.find_first_of(kUpperCase) != std::string_view::npos) &&
         consists_of(text, {kLowerCase, kUpperCase, kDigits, ".-:[]"});
}

// Whether a text has the form [domain/]repository[:tag][@digest]. Only the domain and the tag may have upper case.
bool is_image_reference(std::string_view text) {
  constexpr size_t kMaxTag = 128;
  constexpr size_t kMinDigest = 32;
  if (const size_t at = text.find('@'); at != std::string_view::npos) {
    const std::string_view digest = text.substr(at + 1);
    const size_t colon = std::min(digest.find(':'), digest.size());
    if (!consists_of(digest.substr(0, colon), {kLowerCase, kUpperCase, kDigits, "+._-"})) return false;
    if (digest.size() < colon + 1 + kMinDigest || !consists_of(digest.substr(colon + 1), {kDigits, "abcdefABCDEF"}))
      return false;
    text = text.substr(0, at);
  }
  const size_t slash = text.rfind('/');
  if (const size_t colon = text.find(':', slash == std::string_view::npos ? 0 : slash);
      colon != std::string_view::npos) {
    const std::string_view tag = text.substr(colon + 1);
    if (tag.size() > kMaxTag || !consists_of(tag, {kLowerCase, kUpperCase, kDigits, "_.-"})) return false;
    if (!consists_of(tag.substr(0, 1), {kLowerCase, kUpperCase, kDigits, "_"})) return false;
    text = text.substr(0, colon);
  }
  if (const size_t first = text.find('/'); first != std::string_view::npos && is_domain(text.substr(0, first)))
    text.remove_prefix(first + 1);
  while (true) {
    const size_t end = std::min(text.find('/'), text.size());
    if (!is_repository_component(text.substr(0, end))) return false;
    if (end == text.size()) return true;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

bool is_label_value(const std::string& text) {
  static const std::regex kForm("([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?");
  return text.size() <= 63 && std::regex_match(text, kForm);
}

bool is_label_key(const std::string& text) {
  static const std::regex kDomain("[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*");
  const size_t slash = text.find('/');
  const std::string name = text.substr(slash == std::string::npos ? 0 : slash + 1);
  if (name.empty() || !is_label_value(name)) return false;
  if (slash == std::string::npos) return true;
  const std::string domain = text.substr(0, slash);
  return domain.size() <= 253 && std::regex_match(domain, kDomain);
}

bool is_object_name(const std::string& text, bool allows_dots) {
  static const std::regex kLabel("[a-z0-9]([-a-z0-9]*[a-z0-9])?");
  static const std::regex kSubdomain("[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*");
  return text.size() <= (allows_dots ? 253U : 63U) && std::regex_match(text, allows_dots ? kSubdomain : kLabel);
}

void check_size(const Node& quantity, const std::string& path, yaml::Problems& problems) {
  constexpr double kSmallest = 1 << 20;
  if (quantity.kind() != Node::Kind::kScalar || !api::is_quantity(quantity.to_json())) return;
  const double bytes = api::quantity_value(quantity.to_json());
  if (bytes <= 0 || bytes >= kSmallest) return;
  const std::string text = shortened(quantity.text());
  const std::string number = text.substr(0, text.find_first_not_of("0123456789."));
  problems.add(quantity.mark(), path,
               fmt::format("{} is less than 1 MiB{}; did you mean {}Gi?", text,
                           text.ends_with('m') ? ", because m is a thousandth" : "", number));
}

void check_image(const Node& image, const std::string& path, yaml::Problems& problems) {
  if (image.kind() != Node::Kind::kScalar || !image.value().is_string()) return;
  const std::string text = image.text();
  if (text.empty() || is_image_reference(text)) return;
  const std::string lower_case = to_lower_case(text);
  std::string remedy;
  if (text.starts_with("http://") || text.starts_with("https://")) {
    remedy = "; leave out " + text.substr(0, text.find("//") + 2);
  } else if (is_image_reference(lower_case)) {
    remedy = "; the repository has lowercase letters only";
  }
  problems.add(image.mark(), path,
               fmt::format("'{}' is not the reference of an image, such as registry.example.com/team/trainer:1.0{}",
                           shortened(text), remedy));
}

void check_resource_names(const Node& quantities, const std::string& path, yaml::Problems& problems) {
  for (const Node::Entry& entry : quantities.entries()) {
    const std::string why = problem_of_resource(entry.key);
    if (!why.empty()) problems.add(entry.key_mark, fmt::format("{}.{}", path, entry.key), why);
  }
}

void check_labels(const Node& labels, const std::string& path, yaml::Problems& problems) {
  constexpr char kAllowed[] = "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";
  for (const Node::Entry& entry : labels.entries()) {
    const std::string at = fmt::format("{}.{}", path, entry.key);
    if (!is_label_key(entry.key)) {
      problems.add(entry.key_mark, at, fmt::format("this key has other characters than {}", kAllowed));
    } else if (entry.value.kind() == Node::Kind::kScalar && !is_label_value(entry.value.text())) {
      problems.add(entry.value.mark(), at,
                   fmt::format("'{}' is not the value of a label: {}", shortened(entry.value.text()), kAllowed));
    }
  }
}

void check_annotations(const Node& annotations, const std::string& path, yaml::Problems& problems) {
  for (const Node::Entry& entry : annotations.entries()) {
    if (!is_label_key(to_lower_case(entry.key)))
      problems.add(entry.key_mark, fmt::format("{}.{}", path, entry.key),
                   "this key has other characters than an optional domain with '/', and at most 63 letters, digits, "
                   "'-', '_' and '.'");
  }
}

void check_volume_mounts(const Node& pod_spec, const std::string& path, const std::set<std::string>& volumes,
                         yaml::Problems& problems) {
  for (const std::string_view list : {"initContainers", "containers"}) {
    const std::vector<Node> containers = list_at(pod_spec, list);
    for (size_t i = 0; i < containers.size(); ++i) {
      const std::vector<Node> mounts = list_at(containers[i], "volumeMounts");
      for (size_t k = 0; k < mounts.size(); ++k) {
        const std::optional<Node> name = string_node_at(mounts[k], "name");
        if (!name || name->text().empty() || volumes.contains(name->text())) continue;
        const std::string near = suggest(name->text(), {volumes.begin(), volumes.end()});
        problems.add(name->mark(), fmt::format("{}.{}[{}].volumeMounts[{}].name", path, list, i, k),
                     fmt::format("there is no volume '{}' in {}.volumes; {}", shortened(name->text()), path,
                                 near.empty() ? "add it there" : fmt::format("did you mean '{}'?", near)));
      }
    }
  }
}

void check_rules_of_type(std::string_view type, const Node& object, const std::string& path, yaml::Problems& problems) {
  if (object.kind() != Node::Kind::kMap) return;
  check_required(type, object, path, problems);
  check_choices(type, object, path, problems);
  check_object_rules(type, object, path, problems);
  check_value_rules(type, object, path, problems);
  if (type == "PodSpec") {
    check_images(object, path, problems);
    for (const std::string_view list : {"initContainers", "containers", "volumes", "resourceClaims", "schedulingGates"})
      check_unique(object, list, "name", path, problems);
  } else if (type == "Container") {
    check_unique(object, "volumeMounts", "mountPath", path, problems);
    if (const std::optional<Node> image = object.find("image"))
      check_image(*image, fmt::format("{}.image", path), problems);
  } else if (type == "PodSecurityContext") {
    check_unique(object, "sysctls", "name", path, problems);
  } else if (type == "Volume") {
    check_volume_source(object, path, problems);
  } else if (type == "EnvVar") {
    check_variable(object, path, problems);
  } else if (type == "ResourceRequirements") {
    for (const std::string key : {"limits", "requests"}) {
      const std::optional<Node> quantities = object.find(key);
      if (!quantities) continue;
      check_resource_names(*quantities, fmt::format("{}.{}", path, key), problems);
      check_sizes(*quantities, fmt::format("{}.{}", path, key), problems);
    }
    check_requests(object, path, problems);
  }
  if (const std::optional<Node> annotations = object.find("annotations"); annotations && type == "ObjectMeta")
    check_annotations(*annotations, fmt::format("{}.annotations", path), problems);
  for (const std::string key : {"labels", "nodeSelector", "matchLabels"}) {
    const std::optional<Node> labels = object.find(key);
    const bool is_of_type = (key == "labels" && type == "ObjectMeta") || (key == "nodeSelector" && type == "PodSpec") ||
                            (key == "matchLabels" && type == "LabelSelector");
    if (labels && is_of_type) check_labels(*labels, fmt::format("{}.{}", path, key), problems);
  }
}

}  // namespace oarlock::cli
