#include "api/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "api/template_merge.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/text.h"
#include "fields/json_reader.h"
#include "fields/yaml_reader.h"

namespace oarlock::api {
namespace {

using Json = nlohmann::json;

constexpr char kIsOfJob[] = "belongs to a job, not to a profile; leave it out";
constexpr int kMaxDepth = 100;

// Returns the container "trainer" of a template if it has an image; null otherwise.
Json* trainer_with_image(Json& pod_template) {
  if (!member(member(pod_template, "spec"), "containers").is_array()) return nullptr;
  for (Json& container : pod_template["spec"]["containers"]) {
    if (text_at(container, "name") == kTrainerContainer && container.contains("image")) return &container;
  }
  return nullptr;
}

void drop_image(Json& spec) {
  spec.erase("image");
  if (!spec.contains("template")) return;
  if (Json* trainer = trainer_with_image(spec["template"])) trainer->erase("image");
}

void merge_spec(Json& base, Json patch) {
  for (const auto& [key, value] : patch.items()) {
    const auto known = base.find(key);
    const bool is_merged =
        known != base.end() && known->is_object() && value.is_object() && key != "checkpoints" && key != "topology";
    if (is_merged && key == "template") {
      merge_template(*known, std::move(value), PatchNull::kKeep);
    } else if (is_merged) {
      merge_spec(*known, std::move(value));
    } else {
      base[key] = std::move(value);
    }
  }
}

std::vector<std::string> job_members_of(const Json& spec) {
  std::vector<std::string> out;
  for (const char* key : kJobMembers) {
    if (spec.contains(key)) out.emplace_back(key);
  }
  return out;
}

}  // namespace

Result<Json> merge_profile(const std::string& profile, Json job_spec) {
  Json merged = parse_untrusted_json(profile, kMaxProfileBytes, kMaxDepth);
  if (!merged.is_object() || !job_spec.is_object())
    return fail(ExitCode::kConfig, "spec: the job or its profile is not a map");
  for (const char* key : kJobMembers) merged.erase(key);
  bool has_image = job_spec.contains("image");
  if (const auto own = job_spec.find("template"); own != job_spec.end() && !own->is_null()) {
    const std::string text =
        own->is_binary() ? std::string(own->get_binary().begin(), own->get_binary().end()) : dump_json(*own);
    Json parsed = parse_untrusted_json(text, kMaxProfileBytes, kMaxDepth);
    if (!parsed.is_object())
      return fail(ExitCode::kConfig,
                  fmt::format("spec.template: is not a map of at most {} KiB, the limit for a job with a profile; make "
                              "it smaller, or set spec.profile: \"\"",
                              kMaxProfileBytes / 1024));
    *own = std::move(parsed);
    has_image = has_image || trainer_with_image(*own) != nullptr;
  }
  if (has_image) drop_image(merged);
  merge_spec(merged, std::move(job_spec));
  return merged;
}

std::string find_profile_problem(const std::string& spec) {
  if (spec.size() > kMaxProfileBytes)
    return fmt::format("spec is larger than {} KiB; move a part of it to the jobs", kMaxProfileBytes / 1024);
  const Json object = parse_untrusted_json(spec, kMaxProfileBytes, kMaxDepth);
  if (!object.is_object()) return "spec is not a map";
  if (const std::vector<std::string> keys = job_members_of(object); !keys.empty())
    return fmt::format("spec.{}: {}", keys.front(), kIsOfJob);
  Spec parsed;
  ReadFindings findings;
  const Json root = {{"spec", object}};
  JsonFieldsReader reader(root, {}, JsonFieldsReader::UnknownFields::kReport, findings);
  reader.section("spec", JsonFieldsReader::UnknownFields::kReport, [&](Fields& fields) { describe(parsed, fields); });
  if (!findings.problems.empty()) return findings.problems.front();
  if (!findings.unknown.empty())
    return findings.unknown.front() + " in this version of the operator; remove it, or run the version that has it";
  return "";
}

bool awaits_start(const Status& status) {
  if (status.phase == Phase::kNone || status.phase == Phase::kSuspended) return true;
  return status.phase == Phase::kPending && std::ranges::any_of(status.conditions, [](const Condition& condition) {
           return condition.type == to_string(Phase::kPending) &&
                  (condition.reason == kProfileNotFound || condition.reason == kInvalidProfile);
         });
}

std::string profile_name(const Spec& spec) { return spec.profile.value_or(kDefaultProfile); }

AppliedProfile profile_from_yaml(const yaml::Node& node, yaml::Problems& problems) {
  AppliedProfile out;
  const size_t problems_before = problems.size();
  YamlFieldsReader root(node, "", problems);
  std::string api_version;
  std::string kind;
  for (const char* key : {"apiVersion", "kind", "metadata", "spec"}) root.require(key);
  root.field("apiVersion", api_version, "");
  if (api_version != kApiVersion)
    root.problem("apiVersion", fmt::format("'{}' is not {}; replace it", shortened(api_version), kApiVersion));
  root.field("kind", kind, "");
  root.skip("metadata");
  root.skip("status");
  if (const auto metadata = node.find("metadata")) {
    if (const auto name = metadata->find("name")) out.name = name->text();
    if (const auto name = metadata->find("namespace")) out.namespace_name = name->text();
  }
  if (out.name.empty()) root.problem("metadata.name", "is required");
  Spec spec;
  if (root.has("spec"))
    root.section(
        "spec",
        [&](Fields& fields) {
          describe(spec, fields);
          for (const char* key : kJobMembers) {
            if (fields.has(key)) fields.problem(key, kIsOfJob);
          }
        },
        "");
  root.finish();
  if (const auto given = node.find("spec"); given && problems.size() == problems_before) {
    yaml::check_json_conversion(*given, problems);
    if (problems.size() == problems_before) out.spec = dump_json(given->to_json());
  }
  return out;
}

}  // namespace oarlock::api
