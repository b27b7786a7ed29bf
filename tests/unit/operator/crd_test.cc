// The CRD and the code say the same: fields, types, limits, defaults, messages.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/yaml/reader.h"
#include "operator/api/codec.h"
#include "operator/api/fields.h"
#include "operator/api/rules.h"

namespace oarlock::test {
namespace {

using nlohmann::json;

json crd() {
  static const json document =
      yaml::load_all(std::string(OARLOCK_SOURCE) + "/manifests/crd/oarlock.dev_trainingjobs.yaml")
          .value()
          .at(0)
          .to_json();
  return document;
}

json schema(const char* part) { return crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]; }

using Fields = std::map<std::string, std::string>;  // path -> type as the schema would write it

// A Reader of fields.h that reads nothing and notes what it was asked for.
class Lister {
 public:
  Lister(std::string path, Fields& fields) : path_(std::move(path)), fields_(fields) {}

  void read(const char* key, bool&) { note(key, "boolean"); }
  void read(const char* key, int&) { note(key, "integer/int32"); }
  void read(const char* key, int64_t&) { note(key, "integer/int64"); }
  void read(const char* key, double&) { note(key, "number"); }
  void read(const char* key, std::string&) { note(key, "string"); }
  void read(const char* key, SystemTime&) { note(key, "string/date-time"); }
  template <typename T>
  void read(const char* key, std::optional<T>&) {
    T value{};
    read(key, value);
  }
  void truth(const char* key, bool&) { note(key, "string"); }
  void phase(const char* key, api::Phase&) { note(key, "string"); }
  void object(const char* key, std::string&) { note(key, "any"); }
  template <typename Fn>
  void map(const char* key, Fn read_fields) {
    note(key, "object");
    Lister nested(path_ + "." + key, fields_);
    read_fields(nested);
  }
  template <typename T, typename Fn>
  void list(const char* key, std::vector<T>&, Fn read_item) {
    note(key, "array");
    T item{};
    Lister nested(path_ + "." + key + "[]", fields_);
    read_item(nested, item);
  }

 private:
  void note(const char* key, const std::string& type) { fields_[path_ + "." + key] = type; }

  std::string path_;
  Fields& fields_;
};

void list_schema(const json& node, const std::string& path, Fields& fields) {
  const json properties = node.value("properties", json::object());
  for (const auto& [key, value] : properties.items()) {
    const std::string at = path + "." + key;
    const bool open = value.value("x-kubernetes-preserve-unknown-fields", false);
    std::string type = open ? "any" : value.at("type").get<std::string>();
    if (value.contains("format")) type += "/" + value["format"].get<std::string>();
    fields[at] = type;
    if (type == "object") list_schema(value, at, fields);
    if (type == "array") list_schema(value["items"], at + "[]", fields);
  }
}

TEST(Crd, HasTheFieldsOfTheCodec) {
  Fields code;
  api::Spec spec;
  api::Status status;
  Lister spec_lister("spec", code);
  api::fields::spec(spec_lister, spec);
  Lister status_lister("status", code);
  api::fields::status(status_lister, status);

  Fields manifest;
  list_schema(schema("spec"), "spec", manifest);
  list_schema(schema("status"), "status", manifest);
  EXPECT_EQ(code, manifest);
}

TEST(Crd, HasTheDefaultsOfTheCode) {
  const json minimal = {{"metadata", {{"name", "a"}}}, {"spec", {{"template", json::object()}}}};
  const json defaults = api::to_json(api::training_job_from_json(minimal).value())["spec"];
  const std::function<void(const json&, const json&, const std::string&)> compare =
      [&](const json& node, const json& values, const std::string& path) {
        for (const auto& [key, value] : node["properties"].items()) {
          const bool is_group = value["type"] == "object" && value.contains("properties") && key != "template";
          if (is_group) {
            EXPECT_EQ(value["default"], json::object())
                << path << "." << key << " needs default: {} for those inside to show";
            compare(value, values.at(key), path + "." + key);
          } else if (key != "template" && key != "trainer") {
            ASSERT_TRUE(value.contains("default")) << path << "." << key;
            EXPECT_EQ(value["default"], values.at(key)) << path << "." << key;
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
  EXPECT_EQ(limits(spec["rendezvous"]["properties"]["port"]), std::pair(1, 65535));
  const json pod = spec["template"]["properties"]["spec"]["properties"];
  EXPECT_EQ(pod["containers"]["maxItems"], api::rules::kMaxContainers);
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

TEST(Crd, SaysWhatTheOfflineCheckSays) {
  std::set<std::string> messages;
  collect_messages(crd(), messages);
  namespace rules = api::rules;
  const std::set<std::string> code = {
      rules::kName,    rules::kNameLength,    rules::kImmutable, rules::kPortIsMetrics, rules::kPortTaken,
      rules::kTrainer, rules::kRestartPolicy, rules::kHostname,  rules::kVolumeName,    rules::kConfigMount};
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

TEST(Crd, KnowsEveryPhase) {
  const json phases = schema("status")["properties"]["phase"]["enum"];
  std::vector<std::string> code;
  for (const api::Phase phase : {api::Phase::kPending, api::Phase::kRunning, api::Phase::kRestarting,
                                 api::Phase::kSuspended, api::Phase::kComplete, api::Phase::kFailed}) {
    code.push_back(to_string(phase));
  }
  EXPECT_EQ(phases, json(code));
}

TEST(Crd, ShowsColumnsOfFieldsThatExist) {
  Fields fields;
  list_schema(schema("status"), ".status", fields);
  std::vector<std::string> shown;
  std::vector<std::string> wide;
  const json columns = crd()["spec"]["versions"][0]["additionalPrinterColumns"];
  for (const json& column : columns) {
    (column.value("priority", 0) == 0 ? shown : wide).push_back(column["name"]);
    const std::string path = column["jsonPath"];
    if (path == ".metadata.creationTimestamp") continue;
    ASSERT_TRUE(fields.contains(path)) << path;
    EXPECT_EQ(fields[path].substr(0, fields[path].find('/')), column["type"]) << path;
  }
  EXPECT_EQ(shown, (std::vector<std::string>{"State", "Ready", "Step", "Progress", "Restarts", "Age"}));
  EXPECT_EQ(wide, (std::vector<std::string>{"Loss", "Speed"}));
  EXPECT_EQ(crd()["spec"]["names"]["shortNames"], json::array({"tj"}));
  EXPECT_TRUE(crd()["spec"]["versions"][0]["subresources"].contains("status"));
}

}  // namespace
}  // namespace oarlock::test
