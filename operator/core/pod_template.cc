#include "operator/core/pod_template.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "api/rules.h"
#include "api/template_merge.h"
#include "common/json_access.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";
constexpr char kTemporaryVolume[] = "tmp";
constexpr char kTemporaryPath[] = "/tmp";

Json parse_object(const std::string& text) {
  Json object = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
  return object.is_object() ? object : Json::object();
}

// ---- Base ------------------------------------------------------------------------------------------------------

Json resources_of(const api::Spec& spec) {
  Json out = Json::object();
  if (!spec.resources_per_node) return out;
  if (Json requests = parse_object(spec.resources_per_node->requests); !requests.empty()) out["requests"] = requests;
  if (Json limits = parse_object(spec.resources_per_node->limits); !limits.empty()) out["limits"] = limits;
  return out;
}

Json checkpoint_volume(const Job& job) {
  Json volume = {{"name", kCheckpointVolume}};
  if (!job.spec.checkpoints) {
    volume["emptyDir"] = Json::object();
  } else {
    const std::string& given = job.spec.checkpoints->claim_name;
    volume["persistentVolumeClaim"] = {{"claimName", given.empty() ? claim_name(job) : given}};
  }
  return volume;
}

// Whether an attempt of the job can have more than one pod.
bool has_several_nodes(const Job& job) {
  const BoxedOptional<api::Elastic>& elastic = job.spec.elastic;
  return job.spec.nodes > 1 || (elastic && elastic->max_nodes.value_or(2) > 1);
}

Json mount(const char* volume, const char* path) { return {{"name", volume}, {"mountPath", path}}; }

// The parts of the spec that apply to each template.
Json explicit_parts(const Job& job) {
  Json trainer = {{"name", kTrainerContainer}};
  if (Json resources = resources_of(job.spec); !resources.empty()) trainer["resources"] = std::move(resources);
  Json spec = Json::object();
  if (job.spec.checkpoints) {
    trainer["volumeMounts"] = Json::array({mount(kCheckpointVolume, api::rules::kCheckpointMountPath)});
    spec["volumes"] = Json::array({checkpoint_volume(job)});
  }
  spec["containers"] = Json::array({std::move(trainer)});
  return {{"spec", std::move(spec)}};
}

Json pod_security_context(const PodDefaults& defaults) {
  Json out = {{"runAsNonRoot", true}, {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  if (defaults.user == 0) return out;
  out["runAsUser"] = out["runAsGroup"] = out["fsGroup"] = defaults.user;
  out["fsGroupChangePolicy"] = "OnRootMismatch";  // a recursive change takes minutes on a large volume
  return out;
}

// Prefers one pod on each node. The constraint is not a requirement, so that a job also starts on a cluster with fewer
// nodes.
Json spread(const Job& job) {
  return {{"maxSkew", 1},
          {"topologyKey", "kubernetes.io/hostname"},
          {"whenUnsatisfiable", "ScheduleAnyway"},
          {"labelSelector", {{"matchLabels", {{kLabelJobName, job.metadata.name}}}}},
          {"matchLabelKeys", Json::array({kLabelAttempt})}};
}

Json default_pod(const Job& job, const PodDefaults& defaults) {
  Json out = explicit_parts(job);
  Json& spec = out["spec"];
  spec["securityContext"] = pod_security_context(defaults);
  if (has_several_nodes(job)) spec["topologySpreadConstraints"] = Json::array({spread(job)});
  spec["volumes"] = Json::array({checkpoint_volume(job), {{"name", kTemporaryVolume}, {"emptyDir", Json::object()}}});
  Json& trainer = spec["containers"].front();
  trainer["image"] = job.spec.image.empty() ? defaults.image : job.spec.image;
  trainer["securityContext"] = {{"allowPrivilegeEscalation", false},
                                {"readOnlyRootFilesystem", true},
                                {"capabilities", {{"drop", Json::array({"ALL"})}}}};
  trainer["volumeMounts"] = Json::array(
      {mount(kCheckpointVolume, api::rules::kCheckpointMountPath), mount(kTemporaryVolume, kTemporaryPath)});
  return out;
}

// Whether affinities cannot be added, because those of the template have other types; the API server reports it.
bool has_malformed_affinity(const Json& spec) {
  const auto is_other = [](const Json& value, Json::value_t type) { return !value.is_null() && value.type() != type; };
  const Json& affinity = member(spec, "affinity");
  if (is_other(affinity, Json::value_t::object)) return true;
  for (const char* kind : {"podAffinity", "podAntiAffinity"}) {
    const Json& terms = member(affinity, kind);
    if (is_other(terms, Json::value_t::object)) return true;
    for (const char* list : {kRequired, kPreferred}) {
      if (is_other(member(terms, list), Json::value_t::array)) return true;
    }
  }
  return false;
}

// Requires or prefers nodes of one domain for the pods of an attempt; the scheduler accepts any domain for the first of
// them. An exclusive domain has no pods of other jobs, in any namespace. As these have the label of jobs, too, the
// scheduler keeps later ones out of the domain. A label with the uid distinguishes jobs of the same name: a selector
// that excludes the namespace does not, because the schedulers of Kubernetes 1.34 and later then match the job's own
// pods.
void add_topology(const Job& job, Json& pod) {
  const auto& topology = job.spec.scheduling.topology;
  if (!topology || has_malformed_affinity(member(pod, "spec"))) return;
  map_in(map_in(pod, "metadata"), "labels")[kLabelJobUid] = job.metadata.uid;
  Json& affinity = map_in(map_in(pod, "spec"), "affinity");
  const Json together = {{"topologyKey", topology->key},
                         {"labelSelector", {{"matchLabels", {{kLabelJobName, job.metadata.name}}}}},
                         {"matchLabelKeys", Json::array({kLabelAttempt})}};
  Json& near = map_in(affinity, "podAffinity");
  if (topology->mode == api::TopologyMode::kPreferred) {
    list_in(near, kPreferred).push_back({{"weight", 100}, {"podAffinityTerm", together}});
    return;
  }
  list_in(near, kRequired).push_back(together);
  if (topology->mode != api::TopologyMode::kExclusive) return;
  const Json is_of_job = {{"key", kLabelJobName}, {"operator", "Exists"}};
  const Json is_of_other = {{"key", kLabelJobUid}, {"operator", "NotIn"}, {"values", Json::array({job.metadata.uid})}};
  list_in(map_in(affinity, "podAntiAffinity"), kRequired)
      .push_back({{"topologyKey", topology->key},
                  {"namespaceSelector", Json::object()},
                  {"labelSelector", {{"matchExpressions", Json::array({is_of_job, is_of_other})}}}});
}

bool is_complete(const Json& pod) {
  const Json* trainer = find_item(elements(member(pod, "spec"), "containers"), "name", kTrainerContainer);
  return trainer != nullptr && !text_at(*trainer, "image").empty();
}

}  // namespace

bool is_trainer_image(std::string_view image) {
  image = image.substr(0, image.find('@'));
  const size_t colon = image.rfind(':');  // of the tag, or of the registry's port
  const bool has_tag = colon != std::string_view::npos && image.find('/', colon) == std::string_view::npos;
  if (has_tag) image = image.substr(0, colon);
  return image == kTrainerRepository || image.ends_with(fmt::format("/{}", kTrainerRepository));
}

std::string default_trainer_image() { return std::string(kTrainerRepository) + ":" OARLOCK_VERSION; }

Json make_pod_template(const Job& job, const PodDefaults& defaults) {
  Json given = parse_object(job.spec.pod_template);
  Json out = is_complete(given) ? explicit_parts(job) : default_pod(job, defaults);
  api::merge_template(out, std::move(given), api::PatchNull::kErase);
  add_topology(job, out);
  return out;
}

bool keeps_checkpoints(const Job& job) {
  if (job.spec.checkpoints) return true;
  const Json given = parse_object(job.spec.pod_template);
  const Json* volume = find_item(elements(member(given, "spec"), "volumes"), "name", kCheckpointVolume);
  // The images of complete templates need not save checkpoints. A volume without a source is an emptyDir.
  if (volume == nullptr) return is_complete(given);
  return volume->size() > 1 && !volume->contains("emptyDir");
}

bool needs_new_claim(const Job& job) { return job.spec.checkpoints && job.spec.checkpoints->claim_name.empty(); }

std::string claim_name(const Job& job) { return fmt::format("{}-checkpoints", job.metadata.name); }

Json desired_claim(const Job& job) {
  const api::Checkpoints checkpoints = job.spec.checkpoints.value_or(api::Checkpoints{});
  Json spec = {{"accessModes", Json::array({has_several_nodes(job) ? "ReadWriteMany" : "ReadWriteOnce"})},
               {"resources", {{"requests", {{"storage", checkpoints.size}}}}}};
  if (checkpoints.storage_class_name) spec["storageClassName"] = *checkpoints.storage_class_name;
  return {{"apiVersion", "v1"},
          {"kind", "PersistentVolumeClaim"},
          {"metadata",
           {{"name", claim_name(job)},
            {"namespace", job.metadata.namespace_name},
            {"labels", {{kLabelJobName, job.metadata.name}, {kLabelManagedBy, kManagedByOarlock}}}}},
          {"spec", std::move(spec)}};
}

}  // namespace oarlock::control
