// manifests/crd is generated from the code (run with --update to write it), and agrees with the codec on defaults and
// with offline validation on messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "api/codec.h"
#include "api/profile.h"
#include "api/rules.h"
#include "api/validate.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "yaml/reader.h"
#include "yaml/writer.h"

namespace oarlock::test {
namespace {

using nlohmann::json;

json crd() {
  static const json document =
      yaml::load_all(test::source_path("manifests/crd/oarlock.dev_trainingjobs.yaml")).value().at(0).to_json();
  return document;
}

json schema(const char* part) { return crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]; }

using FieldTypes = std::map<std::string, std::string>;  // path -> type in the notation of the schema

// The values of an enumeration. An enumeration with a single value is not listed as one.
std::string type_of(const json& node) {
  if (node.value("x-kubernetes-preserve-unknown-fields", false) || node.contains("additionalProperties")) return "any";
  if (node.value("x-kubernetes-int-or-string", false))
    return "integer or " + node["pattern"].get<std::string>().substr(1, 4);
  std::string type = node.at("type").get<std::string>();
  if (node.contains("format")) type += "/" + node["format"].get<std::string>();
  if (node.contains("enum") && node["enum"].size() > 1) {
    type += " one of";
    for (const json& value : node["enum"]) type += " " + value.get<std::string>();
  }
  return type;
}

void list_schema(const json& node, const std::string& path, FieldTypes& fields) {
  const json properties = node.value("properties", json::object());
  for (const auto& [key, value] : properties.items()) {
    const std::string at = path + "." + key;
    fields[at] = type_of(value);
    if (value.value("type", "") == "object" && fields[at] != "any") list_schema(value, at, fields);
    if (value.value("type", "") == "array") {
      fields[at + "[]"] = type_of(value["items"]);
      list_schema(value["items"], at + "[]", fields);
    }
  }
}

TEST(Crd, FileIsGenerated) {
  const std::string text =
      "# Generated from api by crd_test --update; do not edit.\n" + yaml::to_yaml(api::custom_resource_definition());
  expect_golden("../../manifests/crd/oarlock.dev_trainingjobs.yaml", text);
  expect_golden("../../charts/oarlock/files/oarlock.dev_trainingjobs.yaml", text);
}

TEST(Crd, OfProfilesIsGenerated) {
  const nlohmann::ordered_json crd_of_profiles = api::profile_resource_definition();
  const std::string text = "# Generated from api by crd_test --update; do not edit.\n" + yaml::to_yaml(crd_of_profiles);
  expect_golden("../../manifests/crd/oarlock.dev_trainingprofiles.yaml", text);
  expect_golden("../../charts/oarlock/files/oarlock.dev_trainingprofiles.yaml", text);
  const json spec =
      crd_of_profiles["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
  const json of_jobs = schema("spec")["properties"];
  for (const auto& [key, value] : of_jobs.items()) {
    const bool is_of_job = std::ranges::find(api::kJobMembers, key) != std::end(api::kJobMembers);
    EXPECT_EQ(spec.contains(key), !is_of_job) << key;
  }
  EXPECT_EQ(json(spec).dump().find("\"default\""), std::string::npos);
}

TEST(Crd, HasTheDefaultsOfTheCode) {
  const json minimal = {{"metadata", {{"name", "a"}}}, {"spec", json::object()}};
  const json defaults = api::to_json(api::training_job_from_json(minimal).value())["spec"];
  const std::function<void(const json&, const json&, const std::string&)> compare =
      [&](const json& node, const json& values, const std::string& path) {
        for (const auto& [key, value] : node["properties"].items()) {
          const bool is_object = value.value("type", "") == "object" && value.contains("properties");
          // The defaults of an optional group apply where it is given.
          const bool is_optional = is_object && !value.contains("default") && !values.contains(key);
          if (is_optional) {
            std::string pointer = "/" + path + "/" + key;
            std::ranges::replace(pointer, '.', '/');
            json given = minimal;
            given[json::json_pointer(pointer)] = json::object();
            const json set = api::to_json(api::training_job_from_json(given).value());
            for (const auto& [name, member] : value["properties"].items()) {
              EXPECT_EQ(member.value("default", json()), set.value(json::json_pointer(pointer + "/" + name), json()))
                  << path << "." << key << "." << name;
            }
          } else if (is_object && key != "template") {
            EXPECT_FALSE(value.contains("default")) << path << "." << key;
            compare(value, values.at(key), path + "." + key);
          } else if (path != "spec" || std::ranges::find(api::kJobMembers, key) == std::end(api::kJobMembers)) {
            // A default that the API server sets would take precedence over the value of a profile.
            EXPECT_FALSE(value.contains("default")) << path << "." << key;
            if (key == "template" || !values.contains(key)) continue;
            const json& fallback = values.at(key);
            const std::string expected =
                " Default: " + (fallback.is_string() ? fallback.get<std::string>() : fallback.dump()) + ".";
            EXPECT_TRUE(value["description"].get<std::string>().ends_with(expected)) << path << "." << key << expected;
          } else {
            // A field without a default in the code is omitted if it is not set.
            EXPECT_EQ(value.contains("default"), values.contains(key)) << path << "." << key;
            EXPECT_EQ(value.value("default", json()), values.value(key, json())) << path << "." << key;
          }
        }
      };
  compare(schema("spec"), defaults, "spec");
}

TEST(Crd, HasTheLimitsOfTheCode) {
  const json spec = schema("spec")["properties"];
  const auto limits = [](const json& field) {
    return std::pair(field["minimum"].get<int>(), field["maximum"].get<int>());
  };
  EXPECT_EQ(limits(spec["nodes"]), std::pair(1, api::rules::kMaxNodes));
  EXPECT_EQ(limits(spec["processesPerNode"]), std::pair(1, api::rules::kMaxProcessesPerNode));
  EXPECT_EQ(limits(spec["failurePolicy"]["properties"]["maxRestarts"]), std::pair(0, api::rules::kMaxRestarts));
  const json policy = spec["failurePolicy"]["properties"];
  EXPECT_EQ(limits(policy["backoffSeconds"]), std::pair(0, api::rules::kMaxBackoffSeconds));
  EXPECT_EQ(policy["rules"]["maxItems"], api::rules::kMaxRules);
  const json rule = policy["rules"]["items"]["properties"];
  EXPECT_EQ(rule["onExitCodes"]["properties"]["values"]["maxItems"], api::rules::kMaxExitCode);
  EXPECT_EQ(limits(rule["onExitCodes"]["properties"]["values"]["items"]), std::pair(1, api::rules::kMaxExitCode));
  EXPECT_EQ(rule["onPodReasons"]["maxItems"], api::rules::kMaxRules);
  EXPECT_EQ(rule["onPodReasons"]["items"]["maxLength"], api::rules::kMaxReason);
  EXPECT_EQ(rule["onPodConditions"]["items"]["properties"]["type"]["enum"], json::array({"DisruptionTarget"}));
  EXPECT_EQ(limits(spec["stallPolicy"]["properties"]["timeoutSeconds"]), std::pair(1, api::rules::kMaxSeconds));
  EXPECT_EQ(limits(spec["activeDeadlineSeconds"]), std::pair(1, api::rules::kMaxSeconds));
  EXPECT_EQ(limits(spec["ttlSecondsAfterFinished"]), std::pair(0, api::rules::kMaxSeconds));
  EXPECT_EQ(spec["managedBy"]["maxLength"], api::rules::kMaxManagedBy);
  EXPECT_EQ(spec["image"]["maxLength"], api::rules::kMaxImage);
  for (const char* kind : {"requests", "limits"})
    EXPECT_EQ(spec["resourcesPerNode"]["properties"][kind]["maxProperties"], api::rules::kMaxResources);
  EXPECT_EQ(spec["checkpoints"]["properties"]["claimName"]["maxLength"], api::rules::kMaxObjectName);
  EXPECT_EQ(limits(spec["rendezvous"]["properties"]["port"]), std::pair(1, 65535));
  const json pod = spec["template"]["properties"]["spec"]["properties"];
  EXPECT_EQ(pod["containers"]["maxItems"], api::rules::kMaxContainers);
  EXPECT_EQ(pod["initContainers"]["maxItems"], api::rules::kMaxContainers);
  EXPECT_EQ(pod["containers"]["items"]["properties"]["ports"]["maxItems"], api::rules::kMaxPorts);
  EXPECT_EQ(pod["volumes"]["maxItems"], api::rules::kMaxVolumes);
  EXPECT_EQ(schema("status")["properties"]["attempts"]["maxItems"], api::kMaxAttemptRecords);
}

void collect_messages(const json& node, std::set<std::string>& messages) {
  if (node.is_object()) {
    const json rules = node.value("x-kubernetes-validations", json::array());
    for (const json& rule : rules) messages.insert(rule.at("message"));
  }
  for (const json& child : node) {
    if (child.is_structured()) collect_messages(child, messages);
  }
}

TEST(Crd, HasTheMessagesOfOfflineValidation) {
  std::set<std::string> messages;
  collect_messages(crd(), messages);
  namespace rules = api::rules;
  const std::set<std::string> code = {rules::kName,
                                      rules::kNameLength,
                                      rules::kImmutable,
                                      rules::kPortIsMetrics,
                                      rules::kPortTaken,
                                      rules::kTrainer,
                                      rules::kRestartPolicy,
                                      rules::kTrainerRestarts,
                                      rules::kHostname,
                                      rules::kVolumeName,
                                      rules::kConfigMount,
                                      rules::kOneRequirement,
                                      rules::kIgnoreNeedsExit,
                                      rules::kManagedByForm,
                                      rules::kManagedByFixed,
                                      rules::kTwoImages,
                                      rules::kClaimOrSize,
                                      rules::kClassNeedsSize,
                                      rules::kTwoCheckpointVolumes,
                                      rules::kCheckpointMount,
                                      rules::kElasticBounds,
                                      rules::kPortAfter};
  EXPECT_EQ(messages, code);
}

void expect_descriptions(const json& node, const std::string& path) {
  const json properties = node.value("properties", json::object());
  for (const auto& [key, value] : properties.items()) {
    EXPECT_FALSE(value.value("description", "").empty()) << path << "." << key;
    expect_descriptions(value, path + "." + key);
  }
  if (node.contains("items")) expect_descriptions(node["items"], path + "[]");
}

TEST(Crd, DescribesEveryField) {
  for (const char* part : {"spec", "status"}) {
    EXPECT_FALSE(schema(part)["description"].get<std::string>().empty());
    expect_descriptions(schema(part), part);
  }
}

TEST(Crd, PrintsColumnsOfExistingFields) {
  FieldTypes fields;
  list_schema(schema("status"), ".status", fields);
  std::vector<std::string> shown;
  std::vector<std::string> wide;
  const json columns = crd()["spec"]["versions"][0]["additionalPrinterColumns"];
  for (const json& column : columns) {
    (column.value("priority", 0) == 0 ? shown : wide).push_back(column["name"]);
    const std::string path = column["jsonPath"];
    if (path.starts_with(".metadata.")) continue;
    ASSERT_TRUE(fields.contains(path)) << path;
    EXPECT_EQ(fields[path].substr(0, fields[path].find_first_of("/ ")), column["type"].get<std::string>()) << path;
  }
  EXPECT_EQ(shown, (std::vector<std::string>{"State", "Ready", "Step", "Progress", "Restarts", "Age"}));
  EXPECT_EQ(wide, (std::vector<std::string>{"Loss", "Speed", "Queue"}));
  EXPECT_EQ(crd()["spec"]["names"]["shortNames"], json::array({"tj"}));
  const json subresources = crd()["spec"]["versions"][0]["subresources"];
  EXPECT_TRUE(subresources.contains("status"));
  FieldTypes spec;
  list_schema(schema("spec"), ".spec", spec);
  EXPECT_EQ(spec.count(subresources["scale"]["specReplicasPath"]), 1U);
  EXPECT_EQ(fields.count(subresources["scale"]["statusReplicasPath"]), 1U);
}

}  // namespace
}  // namespace oarlock::test
