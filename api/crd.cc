#include "api/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "api/profile.h"
#include "api/rules.h"
#include "api/types.h"
#include "fields/schema.h"

namespace oarlock::api {
namespace {

using OrderedJson = nlohmann::ordered_json;

// ---- rules ---------------------------------------------------------------------------------------------------------

// A CEL rule of the API server; validate() is its equivalent without an API server.
struct CelRule {
  const char* at;  // "spec.failurePolicy.rules[]"
  const char* rule;
  const char* message;
  const char* field_path = "";  // relative to `at`; "": the object itself
};

static_assert(kDefaultMetricsPort == 9400 && kDefaultMasterPort == 29500 && rules::kNameRoom == 57,
              "the rules below contain these numbers");

constexpr CelRule kRules[] = {
    {.at = "", .rule = "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", .message = rules::kName},
    {.at = "",
     .rule = "self.metadata.name.size() + string(self.spec.nodes - 1).size() <= 57",
     .message = rules::kNameLength},
    {.at = "",
     .rule = "(has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase == 'Suspended') || "
             "(has(self.spec.elastic) == has(oldSelf.spec.elastic) && "
             "(has(self.spec.elastic) || self.spec.nodes == oldSelf.spec.nodes) && "
             // Earlier versions of this CRD stored the default. With a profile, an absent port may be another one.
             "(has(self.spec.rendezvous) && has(self.spec.rendezvous.port) ? self.spec.rendezvous.port : 29500) == "
             "(has(oldSelf.spec.rendezvous) && has(oldSelf.spec.rendezvous.port) ? oldSelf.spec.rendezvous.port : "
             "29500) && "
             "(!has(oldSelf.status) || !has(oldSelf.status.profile) || "
             "(has(self.spec.rendezvous) && has(self.spec.rendezvous.port)) == "
             "(has(oldSelf.spec.rendezvous) && has(oldSelf.spec.rendezvous.port))) && "
             "has(self.spec.profile) == has(oldSelf.spec.profile) && "
             "(!has(self.spec.profile) || self.spec.profile == oldSelf.spec.profile) && "
             "has(self.spec.processesPerNode) == has(oldSelf.spec.processesPerNode) && "
             "(!has(self.spec.processesPerNode) || self.spec.processesPerNode == oldSelf.spec.processesPerNode) && "
             "has(self.spec.image) == has(oldSelf.spec.image) && "
             "(!has(self.spec.image) || self.spec.image == oldSelf.spec.image) && "
             "has(self.spec.resourcesPerNode) == has(oldSelf.spec.resourcesPerNode) && "
             "(!has(self.spec.resourcesPerNode) || self.spec.resourcesPerNode == oldSelf.spec.resourcesPerNode) && "
             "has(self.spec.checkpoints) == has(oldSelf.spec.checkpoints) && "
             "(!has(self.spec.checkpoints) || self.spec.checkpoints == oldSelf.spec.checkpoints) && "
             "has(self.spec.preflight) == has(oldSelf.spec.preflight) && "
             "(!has(self.spec.preflight) || self.spec.preflight == oldSelf.spec.preflight) && "
             "(has(self.spec.scheduling) && has(self.spec.scheduling.topology)) == "
             "(has(oldSelf.spec.scheduling) && has(oldSelf.spec.scheduling.topology)) && "
             "(!has(self.spec.scheduling) || !has(self.spec.scheduling.topology) || "
             "self.spec.scheduling.topology == oldSelf.spec.scheduling.topology) && "
             "has(self.spec.template) == has(oldSelf.spec.template) && "
             "(!has(self.spec.template) || self.spec.template == oldSelf.spec.template) && "
             "has(self.spec.trainer) == has(oldSelf.spec.trainer) && "
             "(!has(self.spec.trainer) || self.spec.trainer == oldSelf.spec.trainer))",
     .message = rules::kImmutable,
     .field_path = ".spec"},
    {.at = "spec",
     .rule = "!has(self.elastic) || (self.nodes >= self.elastic.minNodes && "
             "(!has(self.elastic.maxNodes) || self.nodes <= self.elastic.maxNodes))",
     .message = rules::kElasticBounds,
     .field_path = ".nodes"},
    {.at = "spec",
     .rule = "has(self.managedBy) == has(oldSelf.managedBy) && "
             "(!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
     .message = rules::kManagedByFixed,
     .field_path = ".managedBy"},
    {.at = "spec",
     // A number of ranks that follows from the GPUs (auto) is considered by the operator only.
     .rule = "!has(self.rendezvous) || !has(self.rendezvous.port) || self.rendezvous.port < 9400 || "
             "self.rendezvous.port >= 9400 + "
             "(has(self.processesPerNode) && type(self.processesPerNode) == int ? int(self.processesPerNode) : 1)",
     .message = rules::kPortIsMetrics,
     .field_path = ".rendezvous.port"},
    {.at = "spec",
     .rule =
         "!has(self.failurePolicy) || !has(self.failurePolicy.restartScope) || self.failurePolicy.restartScope != "
         "'Rank' || (has(self.failurePolicy.maxRestarts) && self.failurePolicy.maxRestarts == 0) || self.nodes < 2 || "
         "!has(self.rendezvous) || !has(self.rendezvous.port) || "
         "(self.rendezvous.port < 65535 && (self.rendezvous.port + 1 < 9400 || self.rendezvous.port + 1 >= 9400 + "
         "(has(self.processesPerNode) && type(self.processesPerNode) == int ? int(self.processesPerNode) : 1)))",
     .message = rules::kPortAfter,
     .field_path = ".rendezvous.port"},
    {.at = "spec",
     .rule = "!has(self.preflight) || self.nodes < 2 || !has(self.rendezvous) || !has(self.rendezvous.port) || "
             "(self.rendezvous.port < 65534 && (self.rendezvous.port + 2 < 9400 || self.rendezvous.port + 2 >= 9400 + "
             "(has(self.processesPerNode) && type(self.processesPerNode) == int ? int(self.processesPerNode) : 1)))",
     .message = rules::kPortAfter,
     .field_path = ".rendezvous.port"},
    {.at = "spec",
     .rule =
         "!has(self.template) || !has(self.template.spec) || !has(self.template.spec.containers) || "
         "self.template.spec.containers.all(c, (has(c.name) && c.name == 'trainer') || !has(c.ports) || "
         "c.ports.all(p, !has(p.containerPort) || "
         // The profile that a job names may have another port than the default; the operator checks the merged job.
         "(((has(self.profile) && self.profile != '' && "
         "(!has(self.rendezvous) || !has(self.rendezvous.port) || self.rendezvous.port == 29500)) || "
         "(p.containerPort != (has(self.rendezvous) && has(self.rendezvous.port) ? self.rendezvous.port : 29500) && "
         "(!has(self.failurePolicy) || !has(self.failurePolicy.restartScope) || self.failurePolicy.restartScope != "
         "'Rank' || (has(self.failurePolicy.maxRestarts) && self.failurePolicy.maxRestarts == 0) || self.nodes < 2 || "
         "p.containerPort != (has(self.rendezvous) && has(self.rendezvous.port) ? self.rendezvous.port : 29500) + 1) "
         "&& "
         "(!has(self.preflight) || self.nodes < 2 || "
         "p.containerPort != (has(self.rendezvous) && has(self.rendezvous.port) ? self.rendezvous.port : 29500) + 2))) "
         "&& "
         "(p.containerPort < 9400 || p.containerPort >= 9400 + (has(self.processesPerNode) && "
         "type(self.processesPerNode) == int ? int(self.processesPerNode) : 1)))))",
     .message = rules::kPortTaken,
     .field_path = ".template.spec.containers"},
    {.at = "spec",
     .rule = "!has(self.trainer) || !has(self.template) || !has(self.template.spec) || "
             "!has(self.template.spec.containers) || self.template.spec.containers.all(c, (has(c.name) && c.name != "
             "'trainer') || "
             "!has(c.volumeMounts) || c.volumeMounts.all(m, !has(m.mountPath) || "
             "(m.mountPath != '/etc/oarlock' && m.mountPath != '/etc/oarlock/')))",
     .message = rules::kConfigMount,
     .field_path = ".template.spec.containers"},
    {.at = "spec",
     .rule = "!has(self.image) || !has(self.template) || !has(self.template.spec) || "
             "!has(self.template.spec.containers) || "
             "self.template.spec.containers.all(c, (has(c.name) && c.name != 'trainer') || !has(c.image))",
     .message = rules::kTwoImages,
     .field_path = ".image"},
    {.at = "spec",
     .rule = "!has(self.checkpoints) || !has(self.template) || !has(self.template.spec) || "
             "!has(self.template.spec.volumes) || "
             "self.template.spec.volumes.all(v, !has(v.name) || v.name != 'checkpoints')",
     .message = rules::kTwoCheckpointVolumes,
     .field_path = ".checkpoints"},
    {.at = "spec",
     .rule = "!has(self.checkpoints) || !has(self.template) || !has(self.template.spec) || "
             "!has(self.template.spec.containers) || self.template.spec.containers.all(c, (has(c.name) && c.name != "
             "'trainer') || "
             "!has(c.volumeMounts) || c.volumeMounts.all(m, !has(m.mountPath) || "
             "(m.mountPath != '/checkpoints' && m.mountPath != '/checkpoints/') || "
             "(has(m.name) && m.name == 'checkpoints')))",
     .message = rules::kCheckpointMount,
     .field_path = ".template.spec.containers"},
    {.at = "spec.checkpoints", .rule = "has(self.claimName) != has(self.size)", .message = rules::kClaimOrSize},
    {.at = "spec.checkpoints",
     .rule = "!has(self.storageClassName) || has(self.size)",
     .message = rules::kClassNeedsSize,
     .field_path = ".storageClassName"},
    {.at = "spec.template.spec",
     .rule = "!has(self.containers) || self.containers.exists_one(c, has(c.name) && c.name == 'trainer')",
     .message = rules::kTrainer,
     .field_path = ".containers"},
    {.at = "spec.template.spec",
     .rule = "!has(self.restartPolicy) || self.restartPolicy == 'Never'",
     .message = rules::kRestartPolicy,
     .field_path = ".restartPolicy"},
    {.at = "spec.template.spec",
     .rule = "!has(self.containers) || self.containers.all(c, (has(c.name) && c.name != 'trainer') || "
             "((!has(c.restartPolicy) || c.restartPolicy == 'Never') && "
             "(!has(c.restartPolicyRules) || c.restartPolicyRules.size() == 0)))",
     .message = rules::kTrainerRestarts,
     .field_path = ".containers"},
    {.at = "spec.template.spec", .rule = "!has(self.hostname) && !has(self.subdomain)", .message = rules::kHostname},
    {.at = "spec.template.spec",
     .rule = "!has(self.volumes) || self.volumes.all(v, !has(v.name) || "
             "(v.name != 'oarlock-config' && v.name != 'oarlock-shm'))",
     .message = rules::kVolumeName,
     .field_path = ".volumes"},
    {.at = "spec.failurePolicy.rules[]",
     .rule = "(has(self.onExitCodes) ? 1 : 0) + "
             "(has(self.onPodReasons) && self.onPodReasons.size() > 0 ? 1 : 0) + "
             "(has(self.onPodConditions) && self.onPodConditions.size() > 0 ? 1 : 0) == 1",
     .message = rules::kOneRequirement},
    {.at = "spec.failurePolicy.rules[]",
     .rule = "self.action != 'Ignore' || has(self.onExitCodes)",
     .message = rules::kIgnoreNeedsExit},
    {.at = "spec.managedBy", .rule = "self.matches('^[^/]+/[^/]+$')", .message = rules::kManagedByForm},
};

// Returns the schema of a field below `schema`: "spec.failurePolicy.rules[]".
OrderedJson& schema_at(OrderedJson& schema, std::string_view path) {
  OrderedJson* node = &schema;
  while (!path.empty()) {
    std::string key(path.substr(0, path.find('.')));
    path.remove_prefix(std::min(key.size() + 1, path.size()));
    const bool is_list = key.ends_with("[]");
    if (is_list) key.resize(key.size() - 2);
    node = &node->at("properties").at(key);
    if (is_list) node = &node->at("items");
  }
  return *node;
}

// ---- spec.template -------------------------------------------------------------------------------------------------

// The schema contains only the fields that the rules need. Every other field of a PodTemplateSpec is accepted.

// A map of which only some members are described.
OrderedJson open_map(const char* description, OrderedJson properties) {
  OrderedJson schema = {{"type", "object"}};
  if (*description != '\0') schema["description"] = description;
  schema["x-kubernetes-preserve-unknown-fields"] = true;
  schema["properties"] = std::move(properties);
  return schema;
}

OrderedJson text(const char* description, int max_length) {
  return {{"type", "string"}, {"maxLength", max_length}, {"description", description}};
}

OrderedJson map_of_strings(const char* description) {
  return {{"type", "object"}, {"description", description}, {"additionalProperties", {{"type", "string"}}}};
}

OrderedJson list(const char* description, int max_items, OrderedJson properties) {
  return {{"type", "array"},
          {"maxItems", max_items},
          {"description", description},
          {"items", open_map("", std::move(properties))}};
}

OrderedJson container_properties() {
  const OrderedJson port = {{"type", "integer"}, {"format", "int32"}, {"description", "Number of the port."}};
  return {
      {"name", text("Name of the container.", 63)},
      {"image", text("Image of the container.", rules::kMaxImage)},
      {"restartPolicy", text("Never, or absent, for container 'trainer'.", 16)},
      {"restartPolicyRules", list("Must be absent for container 'trainer'.", rules::kMaxRules, OrderedJson::object())},
      {"ports", list("Ports that the container declares.", rules::kMaxPorts, {{"containerPort", port}})},
      {"volumeMounts",
       list("Where the container mounts its volumes.", rules::kMaxVolumes,
            {{"name", text("Name of the volume.", 63)}, {"mountPath", text("Path in the container.", 4096)}})}};
}

// Adds the members of a PodTemplateSpec.
void describe_template(OrderedJson& schema) {
  OrderedJson containers =
      list("Containers of the pod; one is named 'trainer'.", rules::kMaxContainers, container_properties());
  containers["minItems"] = 1;
  const OrderedJson metadata = {
      {"labels", map_of_strings("Labels of the pods; those under oarlock.dev/ are set by the operator.")},
      {"annotations", map_of_strings("Annotations of the pods; those under oarlock.dev/ are set by the operator.")}};
  const OrderedJson spec = {
      {"restartPolicy", text("Never, or absent.", 16)},
      {"hostname", text("Set by the operator; must be absent.", 63)},
      {"subdomain", text("Set by the operator; must be absent.", 63)},
      {"volumes", list("Volumes of the pod.", rules::kMaxVolumes, {{"name", text("Name of the volume.", 63)}})},
      {"initContainers", list("Containers that run before the others, or together with them as sidecars.",
                              rules::kMaxContainers, {{"name", text("Name of the container.", 63)}})},
      {"containers", containers}};
  schema["properties"] = {
      {"metadata", open_map("Labels and annotations of the pods.", metadata)},
      {"spec", open_map("A PodSpec. Only those of its fields that the rules need are named here. A field that the API "
                        "server does not know fails the job with reason InvalidTemplate.",
                        spec)}};
}

// The default of a field that a profile can set is not part of the schema, only of its description: a value that the
// API server adds to a job would take precedence over that of the profile.
void describe_defaults(OrderedJson& schema) {
  if (!schema.contains("default")) return;
  const OrderedJson value = schema["default"];
  schema.erase("default");
  if (!value.is_object()) {
    schema["description"] = fmt::format("{} Default: {}.", schema["description"].get<std::string>(),
                                        value.is_string() ? value.get<std::string>() : value.dump());
  } else {
    for (auto& [key, property] : schema["properties"].items()) describe_defaults(property);
  }
}

// Replaces the schema of arbitrary members by that of a map of quantities.
void describe_quantities(OrderedJson& schema) {
  schema.erase("x-kubernetes-preserve-unknown-fields");
  schema["maxProperties"] = rules::kMaxResources;
  schema["additionalProperties"] = {
      {"x-kubernetes-int-or-string", true},
      {"pattern", R"(^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$)"}};
}

// ---- the whole object ----------------------------------------------------------------------------------------------

OrderedJson column(const char* name, const char* type, const char* path, const char* description, int priority = 0) {
  OrderedJson out = {{"name", name}, {"type", type}, {"jsonPath", path}, {"description", description}};
  if (priority > 0) out["priority"] = priority;
  return out;
}

OrderedJson columns() {
  return OrderedJson::array(
      {column("State", "string", ".status.phase", "Phase of the job"),
       column("Ready", "string", ".status.nodes.summary", "Pods that are ready"),
       column("Step", "integer", ".status.progress.step", "Optimizer steps done"),
       column("Progress", "string", ".status.progress.completed", "Share of the steps that is done"),
       column("Restarts", "integer", ".status.restarts.total", "Restarts of the whole group"),
       column("Loss", "number", ".status.progress.loss", "Training loss of the last logged step", 1),
       column("Speed", "number", ".status.progress.samplesPerSecond", "Samples per second of the whole job", 1),
       column("Queue", "string", ".status.queue.name", "Queue of Kueue that admits the job", 1),
       {{"name", "Age"}, {"type", "date"}, {"jsonPath", ".metadata.creationTimestamp"}}});
}

// Adds the parts of the schema of a spec that describe() does not define.
void complete_spec(OrderedJson& schema) {
  describe_template(schema_at(schema, "spec.template"));
  describe_quantities(schema_at(schema, "spec.resourcesPerNode.requests"));
  describe_quantities(schema_at(schema, "spec.resourcesPerNode.limits"));
}

OrderedJson schema() {
  Spec spec;
  FieldsSchema spec_schema(FieldsSchema::Defaults::kYes);
  describe(spec, spec_schema);
  Status status;
  FieldsSchema status_schema(FieldsSchema::Defaults::kNo);
  describe(status, status_schema);
  OrderedJson out = {
      {"type", "object"},
      {"description",
       "TrainingJob runs one distributed training as a group of pods that start, fail and restart together."},
      {"required", OrderedJson::array({"spec"})},
      {"properties",
       {{"apiVersion", {{"type", "string"}, {"description", "Version of this schema, oarlock.dev/v1alpha1."}}},
        {"kind", {{"type", "string"}, {"description", "TrainingJob."}}},
        {"metadata", {{"type", "object"}}},
        {"spec", spec_schema.schema("What to run.")},
        {"status", status_schema.schema("The state that the operator observed and its decisions.")}}}};
  for (auto& [key, property] : out["properties"]["spec"]["properties"].items()) {
    if (std::ranges::find(kJobMembers, key) == std::end(kJobMembers)) describe_defaults(property);
  }
  complete_spec(out);
  for (const CelRule& rule : kRules) {
    OrderedJson entry = {{"rule", rule.rule}, {"message", rule.message}};
    if (*rule.field_path != '\0') entry["fieldPath"] = rule.field_path;
    schema_at(out, rule.at)["x-kubernetes-validations"].push_back(std::move(entry));
  }
  return out;
}

OrderedJson profile_schema() {
  Spec spec;
  FieldsSchema spec_schema(FieldsSchema::Defaults::kNo);
  describe(spec, spec_schema);
  OrderedJson out = {
      {"type", "object"},
      {"description",
       "TrainingProfile is a part of the spec of the TrainingJobs in its namespace, or of all jobs if it is in the "
       "namespace of the operator."},
      {"required", OrderedJson::array({"spec"})},
      {"properties",
       {{"apiVersion", {{"type", "string"}, {"description", "Version of this schema, oarlock.dev/v1alpha1."}}},
        {"kind", {{"type", "string"}, {"description", "TrainingProfile."}}},
        {"metadata", {{"type", "object"}}},
        {"spec", spec_schema.schema("Values that are merged into the spec of each job when it starts. Those of the job "
                                    "take precedence.")}}}};
  for (const char* key : kJobMembers) out["properties"]["spec"]["properties"].erase(key);
  complete_spec(out);
  return out;
}

// `more_names` are added to the names that follow from the kind.
OrderedJson resource_definition(const char* kind, std::string plural, const OrderedJson& more_names,
                                const OrderedJson& version) {
  OrderedJson names = {{"kind", kind},
                       {"listKind", fmt::format("{}List", kind)},
                       {"plural", plural},
                       {"singular", plural.substr(0, plural.size() - 1)}};
  names.update(more_names);
  return {
      {"apiVersion", "apiextensions.k8s.io/v1"},
      {"kind", "CustomResourceDefinition"},
      {"metadata",
       {{"name", fmt::format("{}.{}", plural, kGroup)}, {"labels", {{"app.kubernetes.io/name", "oarlock"}}}}},
      {"spec",
       {{"group", kGroup}, {"scope", "Namespaced"}, {"names", names}, {"versions", OrderedJson::array({version})}}}};
}

}  // namespace

OrderedJson custom_resource_definition() {
  const OrderedJson version = {
      {"name", "v1alpha1"},
      {"served", true},
      {"storage", true},
      {"subresources",
       {{"status", OrderedJson::object()},
        {"scale", {{"specReplicasPath", ".spec.nodes"}, {"statusReplicasPath", ".status.nodes.desired"}}}}},
      {"additionalPrinterColumns", columns()},
      {"schema", {{"openAPIV3Schema", schema()}}}};
  return resource_definition(kKind, kPlural,
                             {{"shortNames", OrderedJson::array({"tj"})}, {"categories", OrderedJson::array({"all"})}},
                             version);
}

OrderedJson profile_resource_definition() {
  const OrderedJson version = {
      {"name", kVersion},
      {"served", true},
      {"storage", true},
      {"additionalPrinterColumns",
       OrderedJson::array({{{"name", "Age"}, {"type", "date"}, {"jsonPath", ".metadata.creationTimestamp"}}})},
      {"schema", {{"openAPIV3Schema", profile_schema()}}}};
  return resource_definition(kProfileKind, kProfilePlural, {{"shortNames", OrderedJson::array({"tp"})}}, version);
}

}  // namespace oarlock::api
