// Typing errors in spec.template are reported without an API server.
#include "cli/pod_schema/pod_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/template_typos.h"

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
  for (const char* right :
       {R"({"terminationGracePeriodSeconds": 60.0})",
        R"({"containers": [{"livenessProbe": {"httpGet": {"port": "http"}}}]})",
        R"({"containers": [{"livenessProbe": {"httpGet": {"port": 80}}}]})",
        R"({"containers": [{"resources": {"limits": {"cpu": 2, "memory": "1.5Gi", "a/b": "1e3"}}}]})"}) {
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
