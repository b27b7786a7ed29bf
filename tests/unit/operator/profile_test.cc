// The merge of a job with its TrainingProfile, and what a profile may contain.
#include "api/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "yaml/reader.h"

namespace oarlock::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Merge {
  const char* name;
  const char* profile;
  const char* job;
  const char* merged;
};

// Specs and templates are written with single quotes.
json parse(std::string text) {
  std::ranges::replace(text, '\'', '"');
  return json::parse(text);
}

json pod_spec(const std::string& text) { return {{"template", {{"spec", parse(text)}}}}; }

TEST(MergeProfile, OfSpecs) {
  const Merge rows[] = {
      {.name = "the profile fills in", .profile = "{'image':'p'}", .job = "{}", .merged = "{'image':'p'}"},
      {.name = "the job wins",
       .profile = "{'launcher':'Never'}",
       .job = "{'launcher':'Auto'}",
       .merged = "{'launcher':'Auto'}"},
      {.name = "a default that the job writes wins",
       .profile = "{'failurePolicy':{'maxRestarts':9}}",
       .job = "{'failurePolicy':{'maxRestarts':3}}",
       .merged = "{'failurePolicy':{'maxRestarts':3}}"},
      {.name = "maps are merged by key",
       .profile = "{'failurePolicy':{'maxRestarts':9,'backoffSeconds':1}}",
       .job = "{'failurePolicy':{'maxRestarts':2}}",
       .merged = "{'failurePolicy':{'maxRestarts':2,'backoffSeconds':1}}"},
      {.name = "quantities are merged by resource",
       .profile = "{'resourcesPerNode':{'limits':{'a/b':1,'cpu':2}}}",
       .job = "{'resourcesPerNode':{'limits':{'cpu':4}}}",
       .merged = "{'resourcesPerNode':{'limits':{'a/b':1,'cpu':4}}}"},
      {.name = "lists are replaced",
       .profile = "{'failurePolicy':{'rules':[1,2]}}",
       .job = "{'failurePolicy':{'rules':[3]}}",
       .merged = "{'failurePolicy':{'rules':[3]}}"},
      {.name = "a null removes",
       .profile = "{'activeDeadlineSeconds':5}",
       .job = "{'activeDeadlineSeconds':null}",
       .merged = "{'activeDeadlineSeconds':null}"},
      {.name = "checkpoints are one value",
       .profile = "{'checkpoints':{'claimName':'team'}}",
       .job = "{'checkpoints':{'size':'1Gi'}}",
       .merged = "{'checkpoints':{'size':'1Gi'}}"},
      {.name = "a topology is one value",
       .profile = "{'scheduling':{'topology':{'key':'a','mode':'Preferred'}}}",
       .job = "{'scheduling':{'topology':{'key':'b'}}}",
       .merged = "{'scheduling':{'topology':{'key':'b'}}}"},
      {.name = "members of a job are not taken",
       .profile = "{'nodes':8,'suspend':true,'trainer':{'task':'x'},'ttlSecondsAfterFinished':60}",
       .job = "{'nodes':2}",
       .merged = "{'nodes':2}"},
  };
  for (const Merge& row : rows) {
    const Result<json> merged = api::merge_profile(parse(row.profile).dump(), parse(row.job));
    ASSERT_TRUE(merged) << row.name << ": " << merged.error().message;
    EXPECT_EQ(*merged, parse(row.merged)) << row.name;
  }
}

TEST(MergeProfile, OfTemplates) {
  const Merge rows[] = {
      {.name = "containers by name",
       .profile = "{'containers':[{'name':'trainer','env':[{'name':'A','value':'1'}]}]}",
       .job = "{'containers':[{'name':'trainer','command':['x']},{'name':'log'}]}",
       .merged = "{'containers':[{'name':'trainer','command':['x'],'env':[{'name':'A','value':'1'}]},{'name':'log'}]}"},
      {.name = "variables by name, those of the profile first",
       .profile = "{'containers':[{'name':'trainer','env':[{'name':'A','value':'1'},{'name':'B','value':'2'}]}]}",
       .job = "{'containers':[{'name':'trainer','env':[{'name':'C','value':'$(A)'},{'name':'B','valueFrom':{}}]}]}",
       .merged = "{'containers':[{'name':'trainer','env':[{'name':'A','value':'1'},{'name':'B','valueFrom':{}},"
                 "{'name':'C','value':'$(A)'}]}]}"},
      {.name = "a volume has one source",
       .profile = "{'volumes':[{'name':'d','emptyDir':{}},{'name':'e'}]}",
       .job = "{'volumes':[{'name':'d','hostPath':{}}]}",
       .merged = "{'volumes':[{'name':'d','hostPath':{}},{'name':'e'}]}"},
      {.name = "mounts by path",
       .profile = "{'containers':[{'name':'t','volumeMounts':[{'name':'p','mountPath':'/d'}]}]}",
       .job = "{'containers':[{'name':'t','volumeMounts':[{'name':'j','mountPath':'/d/'}]}]}",
       .merged = "{'containers':[{'name':'t','volumeMounts':[{'name':'j','mountPath':'/d/'}]}]}"},
      {.name = "tolerations of both, once",
       .profile = "{'tolerations':[{'key':'gpu'},{'key':'a'}]}",
       .job = "{'tolerations':[{'key':'a'},{'key':'b'}]}",
       .merged = "{'tolerations':[{'key':'gpu'},{'key':'a'},{'key':'b'}]}"},
      {.name = "init containers of the profile first",
       .profile = "{'initContainers':[{'name':'p','image':'a'}]}",
       .job = "{'initContainers':[{'name':'j'},{'name':'p','image':'b'}]}",
       .merged = "{'initContainers':[{'name':'p','image':'b'},{'name':'j'}]}"},
      {.name = "pull secrets by name",
       .profile = "{'imagePullSecrets':[{'name':'p'}]}",
       .job = "{'imagePullSecrets':[{'name':'j'}]}",
       .merged = "{'imagePullSecrets':[{'name':'j'},{'name':'p'}]}"},
      {.name = "a null remains, for the operator's default",
       .profile = "{'securityContext':{'fsGroup':1}}",
       .job = "{'securityContext':null}",
       .merged = "{'securityContext':null}"},
      {.name = "node selectors by key",
       .profile = "{'nodeSelector':{'a':'1','b':'1'}}",
       .job = "{'nodeSelector':{'b':'2'}}",
       .merged = "{'nodeSelector':{'a':'1','b':'2'}}"},
      {.name = "commands are replaced",
       .profile = "{'containers':[{'name':'trainer','command':['a','b']}]}",
       .job = "{'containers':[{'name':'trainer','command':['c']}]}",
       .merged = "{'containers':[{'name':'trainer','command':['c']}]}"},
  };
  for (const Merge& row : rows) {
    const Result<json> merged = api::merge_profile(pod_spec(row.profile).dump(), pod_spec(row.job));
    ASSERT_TRUE(merged) << row.name;
    EXPECT_EQ(*merged, pod_spec(row.merged)) << row.name;
  }
}

json trainer_with(const char* list, json items) {
  return {{"template", {{"spec", {{"containers", {{{"name", "trainer"}, {list, std::move(items)}}}}}}}}};
}
json repeat(size_t count, const json& item) {
  json out = json::array();
  for (size_t i = 0; i < count; ++i) out.push_back(item);
  return out;
}

// Tenants write these lists, and the thread that reads all jobs merges them. With a comparison of each item of the job
// with each of the profile, this test takes seconds instead of milliseconds.
TEST(MergeProfile, OfLongLists) {
  constexpr size_t kItems = 32'000;  // numbers in the text of a profile
  const json ones = repeat(kItems, 1);
  const json twos = repeat(kItems, 2);
  const auto merged = [](const char* list, const json& profile, const json& job) -> json {
    const auto out = api::merge_profile(trainer_with(list, profile).dump(), trainer_with(list, job));
    return out ? (*out)["template"]["spec"]["containers"][0][list] : json(out.error().message);
  };
  json both = ones;
  both.push_back(2);
  EXPECT_EQ(merged("envFrom", ones, twos), both) << "those of the job once";
  json distinct = json::array();
  for (size_t i = 10'000; i < 20'000; ++i) distinct.push_back(i);
  EXPECT_EQ(merged("envFrom", ones, distinct).size(), kItems + distinct.size());
  EXPECT_EQ(merged("env", ones, twos).size(), 2 * kItems) << "the API server rejects variables without names";
  EXPECT_EQ(merged("volumeMounts", ones, twos), twos) << "neither has a path";
  const json repeated = repeat(4'000, {{"name", "A"}});
  EXPECT_EQ(merged("env", repeated, repeat(4'000, {{"name", "B"}})).size(), 8'000U);
  EXPECT_EQ(merged("env", repeated, repeated), repeated);
}

// Otherwise a list of the profile would be merged once for each of them.
TEST(MergeProfile, ARepeatedContainerIsMergedOnceAndRemains) {
  for (const char* list : {"containers", "initContainers"}) {
    const json profile = pod_spec(fmt::format("{{'{}':[{{'name':'trainer','image':'p'}}]}}", list));
    const json job = pod_spec(fmt::format("{{'{}':[{{'name':'trainer'}},{{'name':'trainer'}}]}}", list));
    EXPECT_EQ(api::merge_profile(profile.dump(), job).value(),
              pod_spec(fmt::format("{{'{}':[{{'name':'trainer','image':'p'}},{{'name':'trainer'}}]}}", list)));
  }
}

TEST(MergeProfile, AnImageOfTheJobReplacesThatOfTheProfileInBothPlaces) {
  const json of_spec = {{"image", "p"}};
  const json of_container = pod_spec("{'containers':[{'name':'trainer','image':'p','tty':true}]}");
  const json own = pod_spec("{'containers':[{'name':'trainer','image':'j'}]}");
  EXPECT_EQ(api::merge_profile(of_spec.dump(), own).value(), own);
  EXPECT_EQ(
      api::merge_profile(of_container.dump(), json{{"image", "j"}}).value(),
      (json{{"image", "j"}, {"template", pod_spec("{'containers':[{'name':'trainer','tty':true}]}")["template"]}}));
}

TEST(MergeProfile, RefusesLargeTemplatesOfJobs) {
  const std::string large(api::kMaxProfileBytes, 'x');
  const auto merged = api::merge_profile("{}", json{{"template", {{"metadata", {{"labels", {{"a", large}}}}}}}});
  ASSERT_FALSE(merged);
  EXPECT_NE(merged.error().message.find("spec.template"), std::string::npos);
}

TEST(FindProfileProblem, NamesThePlace) {
  const std::pair<const char*, const char*> rows[] = {
      {"{'image':'a','template':{'spec':{}}}", ""},
      {"[]", "spec is not a map"},
      {"{'nodes':2}", "spec.nodes: belongs to a job"},
      {"{'ttlSecondsAfterFinished':60}", "spec.ttlSecondsAfterFinished: belongs to a job"},
      {"{'failurePolicy':{'maxRestarts':'2'}}", "spec.failurePolicy.maxRestarts: expected an integer"},
      {"{'launcher':'Sometimes'}", "spec.launcher"},
      {"{'futureField':1}", "spec.futureField: unknown field in this version of the operator"},
  };
  for (const auto& [spec, problem] : rows) {
    const std::string found = api::find_profile_problem(parse(spec).dump());
    EXPECT_EQ(found.empty(), std::string_view(problem).empty()) << spec << found;
    EXPECT_EQ(found.substr(0, std::string_view(problem).size()), problem);
  }
  EXPECT_NE(api::find_profile_problem(std::string(api::kMaxProfileBytes + 1, ' ')).find("64 KiB"), std::string::npos);
}

TEST(ReadTrainingJob, HasTheSpecThatIsMergedWithTheProfileOfItsStatus) {
  const json object = {{"metadata", {{"name", "bert"}}},
                       {"spec", {{"nodes", 3}, {"failurePolicy", {{"maxRestarts", 2}}}}},
                       {"status",
                        {{"profile",
                          {{"name", "default"},
                           {"uid", "u"},
                           {"generation", 4},
                           {"spec", R"({"image":"p","nodes":9,"launcher":"Never"})"}}}}}};
  const api::TrainingJob job = api::read_training_job(object);
  EXPECT_EQ(job.report.problem, "");
  EXPECT_EQ(job.spec.image, "p");
  EXPECT_EQ(job.spec.nodes, 3);
  EXPECT_EQ(job.spec.launcher, api::LauncherInjection::kNever);
  EXPECT_EQ(job.spec.failure_policy.max_restarts, 2);
  ASSERT_TRUE(job.status.profile);
  EXPECT_EQ(job.status.profile->spec, "") << "the copy would take as much memory again";
  const json patch = api::status_patch(job.metadata, job.status)["status"];
  EXPECT_EQ(patch["profile"]["generation"], 4);
  EXPECT_FALSE(patch["profile"].contains("spec")) << "a patch must preserve the stored copy";
  EXPECT_TRUE(api::status_patch(job.metadata, {})["status"]["profile"].is_null());
}

// Otherwise neither a suspension nor another profile could correct it.
TEST(ReadTrainingJob, IsReadWithoutAProfileThatDoesNotFitUnlessItHasStarted) {
  const json blocked = json::array({{{"type", "Pending"}, {"status", "True"}, {"reason", "InvalidProfile"}}});
  const json starting = json::array({{{"type", "Pending"}, {"status", "True"}, {"reason", "PodsStarting"}}});
  const json states[] = {json::object(), {{"phase", "Suspended"}}, {{"phase", "Pending"}, {"conditions", blocked}}};
  const json started[] = {{{"phase", "Running"}}, {{"phase", "Pending"}, {"conditions", starting}}};
  for (const char* profile : {"[", R"({"processesPerNode":4097,"image":"p"})"}) {
    json object = {{"metadata", {{"name", "bert"}}}, {"spec", {{"image", "own"}}}};
    for (const json& state : states) {
      object["status"] = state;
      object["status"]["profile"]["spec"] = profile;
      const api::TrainingJob job = api::read_training_job(object);
      EXPECT_EQ(job.report.problem, "") << object;
      EXPECT_NE(job.report.profile_problem, "") << object;
      EXPECT_EQ(job.spec.image, "own") << object;
      EXPECT_EQ(job.spec.processes_per_node, 1) << object;
      EXPECT_FALSE(api::training_job_from_json(object)) << object;
    }
    for (const json& state : started) {
      object["status"] = state;
      object["status"]["profile"]["spec"] = profile;
      EXPECT_NE(api::read_training_job(object).report.problem, "") << object;
    }
  }
}

TEST(ProfileFromYaml, ReportsProblemsWithTheirPlaces) {
  const auto read = [](const std::string& text) {
    yaml::Problems problems("p.yaml");
    api::AppliedProfile profile = api::profile_from_yaml(yaml::parse_all(text, "p.yaml").value().at(0), problems);
    return problems.empty() ? profile.name + " " + profile.spec : problems.to_error().message;
  };
  const std::string head = "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingProfile\nmetadata: {name: default}\n";
  EXPECT_EQ(read(head + "spec: {image: a}\n"), R"(default {"image":"a"})");
  EXPECT_THAT(read(head + "spec: {nodes: 2}\n"), AllOf(StartsWith("p.yaml:4:"), HasSubstr("spec.nodes: belongs")));
  EXPECT_THAT(read(head + "spec: {launchr: Auto}\n"), AllOf(StartsWith("p.yaml:4:"), HasSubstr("launcher")));
}

}  // namespace
}  // namespace oarlock::test
