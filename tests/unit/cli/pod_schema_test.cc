// Typing errors in spec.template are reported without an API server.
#include "cli/pod_schema/pod_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/job_file.h"
#include "cli/pod_schema/pod_rules.h"
#include "common/contract.h"
#include "tests/support/value_mistakes.h"

namespace oarlock::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string problems_of(const Json& pod_template) {
  yaml::Problems problems("job.yaml");
  const auto documents = yaml::parse_all(pod_template.dump(1), "job.yaml");
  check_pod_template(documents.value().at(0), "spec.template", problems);
  return problems.empty() ? "" : problems.to_error().message;
}

TEST(PodSchema, AcceptsCorrectTemplate) {
  EXPECT_EQ(problems_of(test::full_template()), "");
  EXPECT_EQ(problems_of(Json::object()), "");
  EXPECT_EQ(problems_of({{"spec", {{"volumes", nullptr}}}}), "") << "null selects the default";
}

TEST(PodSchema, ReportsTyposWithPathAndSuggestion) {
  EXPECT_GE(test::template_typos().size(), 20U);
  for (const test::TemplateTypo& typo : test::template_typos()) {
    const std::string found = problems_of(test::with_typo(typo));
    EXPECT_THAT(found, HasSubstr(test::path_of(typo) + ": unknown key"));
    if (typo.has_suggestion) {
      EXPECT_THAT(found, HasSubstr(fmt::format("did you mean '{}'", test::correct_key(typo))));
    }
  }
}

TEST(PodSchema, ReportsValuesThatTheApiServerRejects) {
  for (const auto* mistakes : {&test::template_mistakes(), &test::value_mistakes()}) {
    for (const test::TemplateMistake& mistake : *mistakes) {
      const std::string found = problems_of(test::with_mistake(mistake));
      EXPECT_THAT(found, HasSubstr(fmt::format("spec.template.{}: ", mistake.path))) << mistake.field;
      EXPECT_THAT(found, HasSubstr(mistake.message)) << mistake.field;
      EXPECT_EQ(std::ranges::count(found, '\n'), 0) << found;
    }
  }
}

// Returns the problems that `oarlock validate` reports for a job with this spec.
std::string problems_of_job(const Json& spec) {
  const Json job = {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", {{"name", "j"}}}, {"spec", spec}};
  const auto documents = yaml::parse_all(job.dump(1), "job.yaml");
  const auto jobs = jobs_of(documents.value(), "job.yaml", TemplateCheck::kPodSchema);
  return jobs ? "" : jobs.error().message;
}

TEST(PodSchema, ReportsMistakesThatTheWholePodShows) {
  EXPECT_EQ(problems_of_job({{"template", test::full_template()}}), "");
  for (const test::TemplateMistake& mistake : test::pod_mistakes()) {
    const std::string found = problems_of_job({{"template", test::with_mistake(mistake)}});
    EXPECT_THAT(found, HasSubstr(fmt::format("spec.template.{}: ", mistake.path))) << mistake.value;
    EXPECT_THAT(found, HasSubstr(mistake.message)) << mistake.value;
    EXPECT_EQ(std::ranges::count(found, '\n'), 0) << found;
  }
}

// A container of the template and spec.resourcesPerNode have their resources together.
TEST(PodSchema, ChecksResourcesOfTheMergedContainer) {
  const auto job = [](const char* resources, const char* of_template) {
    Json container = {{"name", "trainer"}, {"resources", Json::parse(of_template)}};
    return Json{{"resourcesPerNode", Json::parse(resources)}, {"template", {{"spec", {{"containers", {container}}}}}}};
  };
  EXPECT_EQ(problems_of_job(job(R"({"limits": {"nvidia.com/gpu": 2}})", R"({"requests": {"nvidia.com/gpu": 2}})")), "");
  EXPECT_THAT(
      problems_of_job(job(R"({"limits": {"nvidia.com/gpu": 2}})", R"({"requests": {"nvidia.com/gpu": 1}})")),
      HasSubstr("spec.template.spec.containers[0].resources.requests.nvidia.com/gpu: 1 must equal the limit, 2"));
  EXPECT_THAT(problems_of_job({{"resourcesPerNode", Json::parse(R"({"requests": {"nvidia.com/gpu": 1},
                                                                    "limits": {"nvidia.com/gpu": 2}})")}}),
              HasSubstr("spec.resourcesPerNode.requests.nvidia.com/gpu: 1 must equal the limit, 2"));
  EXPECT_THAT(problems_of_job({{"resourcesPerNode", Json::parse(R"({"limits": {"hugepages-2Mi": "4Mi"}})")}}),
              HasSubstr("spec.resourcesPerNode: a container with hugepages needs"));
}

TEST(PodSchema, NamesThePlaceOfAKeyOfAnotherObject) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"containers": []})", "spec.template.containers: unknown key; it belongs to spec.template.spec"},
      {R"({"labels": {}})", "spec.template.labels: unknown key; it belongs to spec.template.metadata"},
      {R"({"spec": {"containers": [{"name": "trainer", "limits": {"cpu": 1}}]}})",
       "containers[0].limits: unknown key; it belongs to spec.template.spec.containers[0].resources"},
      {R"({"spec": {"containers": [{"name": "trainer", "nodeSelector": {"a": "b"}}]}})",
       "containers[0].nodeSelector: unknown key; it belongs to spec.template.spec"},
      {R"({"spec": {"containers": [{"name": "trainer", "runAsUser": 1}]}})",
       "containers[0].runAsUser: unknown key; it belongs to spec.template.spec.containers[0].securityContext"},
      {R"({"spec": {"volumes": [{"name": "v", "claimName": "c"}]}})",
       "volumes[0].claimName: unknown key; it belongs to spec.template.spec.volumes[0].persistentVolumeClaim"}};
  for (const auto& [pod_template, message] : rows)
    EXPECT_THAT(problems_of(Json::parse(pod_template)), HasSubstr(message));
}

TEST(PodSchema, ShowsHowToWriteLists) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"command": "python train.py"})", "expected a list, got 'python train.py'; write [python, train.py]"},
      {R"({"command": "sh -c 'a b'"})", "expected a list, got 'sh -c 'a b''"},
      {R"({"env": {"EPOCHS": "3"}})", "expected a list, got a map; write its entries as - {name: EPOCHS, value: ...}"},
      {R"({"volumeMounts": {"name": "v", "mountPath": "/a"}})", "expected a list, got a map; begin each item with '-'"},
      {R"({"env": ["A=b"]})", "expected a map, got 'A=b'; write {name: A, value: b}"},
      {R"({"volumeMounts": ["v:/data"]})", "expected a map, got 'v:/data'; write {name: v, mountPath: /data}"},
      {R"({"ports": [8080]})", "expected a map, got '8080'; write {containerPort: 8080}"}};
  for (const auto& [fields, message] : rows) {
    Json container = Json::parse(fields);
    container["name"] = "trainer";
    EXPECT_THAT(problems_of({{"spec", {{"containers", {container}}}}}), HasSubstr(message));
  }
}

TEST(PodSchema, ChecksNamesOfResources) {
  const auto problem = [](const std::string& name) {
    return problems_of(
        {{"spec", {{"containers", {{{"name", "trainer"}, {"resources", {{"limits", {{name, "8Mi"}}}}}}}}}}});
  };
  for (const char* known : {"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "amd.com/gpu",
                            "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/pgpu", "gpu.intel.com/i915",
                            "rdma/ib", "example.com/gpu", "habana.ai/gaudi"}) {
    EXPECT_EQ(problem(known), "") << known;
  }
  for (const char* typo : {"nvidia.com/gpus", "nvidia.com/GPU", "nvidia.co/gpu", "nvida.com/gpu", "nvidia.com/gup",
                           "nvidia/gpu", "gpu", "gpus", "nvidia"}) {
    EXPECT_THAT(problem(typo), HasSubstr("did you mean 'nvidia.com/gpu'?")) << typo;
  }
  EXPECT_THAT(problem("amd.com/gpus"), HasSubstr("did you mean 'amd.com/gpu'?"));
  EXPECT_THAT(problem("cpus"), HasSubstr("did you mean 'cpu'?"));
  EXPECT_THAT(problem("Memory"), HasSubstr("did you mean 'memory'?"));
  EXPECT_THAT(problem("storage"), HasSubstr("the known ones are cpu, memory"));
}

TEST(PodSchema, ReportsSizesWithoutUnitAndRequestsAboveLimits) {
  struct Row {
    const char* resources;
    const char* message;  // "": none
  };
  constexpr Row kRows[] = {
      {.resources = R"({"limits": {"memory": 16}})",
       .message = "resources.limits.memory: 16 is less than 1 MiB; did you mean 16Gi?"},
      {.resources = R"({"limits": {"memory": "512m"}})",
       .message = "512m is less than 1 MiB, because m is a thousandth; did you mean 512Gi?"},
      {.resources = R"({"requests": {"cpu": 8}, "limits": {"cpu": "4000m"}})",
       .message = "resources.requests.cpu: 8 is above the limit, 4000m; lower it, or raise the limit"},
      {.resources = R"({"requests": {"memory": "2Gi", "cpu": 1}, "limits": {"memory": "2048Mi"}})", .message = ""},
      {.resources = R"({"limits": {"cpu": 1, "memory": "1Mi"}})", .message = ""}};
  for (const Row& row : kRows) {
    Json container = {{"name", "trainer"}, {"resources", Json::parse(row.resources)}};
    const std::string found = problems_of({{"spec", {{"containers", {container}}}}});
    EXPECT_THAT(found, HasSubstr(row.message));
    EXPECT_EQ(found.empty(), *row.message == '\0') << found;
  }
}

TEST(PodSchema, ChecksReferencesOfImages) {
  const auto problem = [](const std::string& image) {
    return problems_of({{"spec", {{"containers", {{{"name", "trainer"}, {"image", image}}}}}}});
  };
  for (const char* right :
       {"x", "busybox:1.36", "pytorch/pytorch:2.11.0-cuda13.0-cudnn9-runtime", "localhost:5000/a/b", "[::1]:5000/a:b",
        "registry.example.com/team/trainer:V1", "REGISTRY/team/trainer",
        "docker.io/oarlock/trainer@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "ghcr.io/a/b_c.d--e:1@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}) {
    EXPECT_EQ(problem(right), "") << right;
  }
  EXPECT_THAT(problem("myorg/Trainer:1"), HasSubstr("'myorg/Trainer:1' is not the reference of an image"));
  EXPECT_THAT(problem("myorg/Trainer:1"), HasSubstr("; the repository has lowercase letters only"));
  EXPECT_THAT(problem("https://a.example.com/b:1"), HasSubstr("; leave out https://"));
  for (const char* wrong : {"trainer:", "trainer :1", "a/b@sha256:12", "${IMAGE}", "\u201cx\u201d", "a//b:1:2"})
    EXPECT_THAT(problem(wrong), HasSubstr("is not the reference of an image")) << wrong;
}

TEST(PodSchema, ReportsMountsWithoutVolume) {
  const auto documents = yaml::parse_all(
      "containers: [{name: trainer, volumeMounts: [{name: dat, mountPath: /d}, {name: tmp, mountPath: /t}]}]\n"
      "initContainers: [{name: a, volumeMounts: [{name: other, mountPath: /o}]}]\n",
      "job.yaml");
  yaml::Problems problems("job.yaml");
  check_volume_mounts(documents.value().at(0), "spec", {"data", "tmp"}, problems);
  EXPECT_EQ(
      problems.to_error().message,
      "job.yaml:2:50: spec.initContainers[0].volumeMounts[0].name: there is no volume 'other' in spec.volumes; add "
      "it there\n"
      "job.yaml:1:52: spec.containers[0].volumeMounts[0].name: there is no volume 'dat' in spec.volumes; did you "
      "mean 'data'?");
}

TEST(PodSchema, ReportsWrongTypes) {
  struct Row {
    const char* pod_spec;
    const char* path;
    const char* message;
  };
  const Row rows[] = {
      {R"({"containers": {"name": "trainer"}})", "containers", "expected a list"},
      {R"({"containers": ["trainer"]})", "containers[0]", "expected a map"},
      {R"({"nodeSelector": ["a"]})", "nodeSelector", "expected a map"},
      {R"({"nodeSelector": {"a": true}})", "nodeSelector.a",
       "expected a string, got the boolean true; put it in quotes"},
      {R"({"hostNetwork": "yes"})", "hostNetwork", "expected true or false"},
      {R"({"terminationGracePeriodSeconds": "60"})", "terminationGracePeriodSeconds", "expected a whole number"},
      {R"({"containers": [{"env": [{"name": "A", "value": 1}]}]})", "containers[0].env[0].value",
       "expected a string, got the number 1; put it in quotes"},
      {R"({"containers": [{"resources": {"limits": {"memory": "16 GB"}}}]})", "containers[0].resources.limits.memory",
       "expected a quantity"},
      {R"({"terminationGracePeriodSeconds": 1.5})", "terminationGracePeriodSeconds",
       "expected a whole number, got 1.5"},
      {R"({"containers": [{"livenessProbe": {"httpGet": {"port": true}}}]})",
       "containers[0].livenessProbe.httpGet.port", "expected a whole number or a string, got true"},
      {R"({"containers": [{"livenessProbe": {"httpGet": {"port": [80]}}}]})",
       "containers[0].livenessProbe.httpGet.port", "expected a whole number or a string"},
      {R"({"containers": [{"livenessProbe": "no"}]})", "containers[0].livenessProbe", "expected a map"}};
  for (const Row& row : rows) {
    EXPECT_THAT(problems_of({{"spec", Json::parse(row.pod_spec)}}),
                AllOf(HasSubstr(std::string("spec.template.spec.") + row.path + ": "), HasSubstr(row.message)))
        << row.pod_spec;
  }
  for (const char* right : {R"({"terminationGracePeriodSeconds": 60.0})",
                            R"({"containers": [{"name": "trainer", "livenessProbe": {"httpGet": {"port": "http"}}}]})",
                            R"({"containers": [{"name": "trainer", "livenessProbe": {"httpGet": {"port": 80}}}]})",
                            R"({"containers": [{"name": "trainer",
                            "resources": {"limits": {"cpu": 2, "memory": "1.5Gi", "a/b": "1e3"}}}]})"}) {
    EXPECT_EQ(problems_of({{"spec", Json::parse(right)}}), "");
  }
}

TEST(PodSchema, TableIsComplete) {
  EXPECT_THAT(pod_schema_version(), ::testing::MatchesRegex("v1\\.[0-9]+"));
  const auto& types = pod_schema_types();
  const std::vector<std::string_view> scalars = {"string", "number", "boolean", "any", "intOrString", "quantity"};
  EXPECT_GT(types.size(), 80U);
  for (const PodSchemaType& type : types) {
    for (const auto& [key, value] : type.fields) {
      std::string_view item = value;
      if (item.starts_with("[]") || item.starts_with("{}")) item.remove_prefix(2);
      const bool is_known = std::ranges::find(scalars, item) != scalars.end() ||
                            std::ranges::find(types, item, &PodSchemaType::name) != types.end();
      EXPECT_TRUE(is_known) << type.name << "." << key << " has type " << value;
    }
  }
}

}  // namespace
}  // namespace oarlock::cli
