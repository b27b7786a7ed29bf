// The health expressions for Flux, on the examples of Argo CD's health check. A real kube-apiserver evaluates them,
// with the CEL library that Flux uses, too: an admission policy rejects each status with their results as the message.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "common/contract.h"
#include "tests/support/api_server.h"
#include "tests/support/paths.h"
#include "yaml/reader.h"

namespace oarlock::test {
namespace {

using Json = nlohmann::json;

constexpr char kExamples[] = "packaging/argocd/oarlock.dev/TrainingJob/";

Json load(const std::string& name) {
  const auto documents = yaml::load_all(source_path(name));
  if (!documents || documents->size() != 1) throw std::runtime_error("cannot read " + name);
  return documents->front().to_json();
}

// Flux makes each field of the object a variable. The macro binds `status` in the same way.
std::string result_of(const Json& expression) {
  return fmt::format("string([object.status].exists(status, {}))", expression.get<std::string>());
}

class FluxHealth : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.apply(source_path("manifests/crd"));
    const Json expressions = load("packaging/flux/health_checks.yaml")["spec"]["healthCheckExprs"].at(0);
    EXPECT_EQ(expressions["apiVersion"], kApiVersion);
    EXPECT_EQ(expressions["kind"], kKind);
    const Json rule = {{"apiGroups", {kGroup}},
                       {"apiVersions", {"*"}},
                       {"operations", {"UPDATE"}},
                       {"resources", {"trainingjobs/status"}}};
    const Json validation = {{"expression", "false"},
                             {"message", "an expression failed"},
                             {"messageExpression", "'failed: ' + " + result_of(expressions["failed"]) +
                                                       " + ', current: ' + " + result_of(expressions["current"])}};
    const std::string admission = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    create(admission + "ies", {{"metadata", {{"name", "health"}}},
                               {"spec",
                                {{"matchConstraints", {{"resourceRules", Json::array({rule})}}},
                                 {"validations", Json::array({validation})}}}});
    create(admission + "ybindings",
           {{"metadata", {{"name", "health"}}}, {"spec", {{"policyName", "health"}, {"validationActions", {"Deny"}}}}});
    jobs_ = "/apis/oarlock.dev/v1alpha1/namespaces/" + server_.make_namespace() + "/trainingjobs";
    ASSERT_TRUE(eventually([&] { return server_.call("GET", jobs_).ok(); }));
    Json job = load(std::string(kExamples) + "testdata/created.yaml");
    job["metadata"] = {{"name", "bert"}};
    create(jobs_, job);
    ASSERT_TRUE(eventually([&] { return evaluate(Json::object()).find("denied request: ") != std::string::npos; }));
  }

  void create(const std::string& target, const Json& body) {
    const Reply reply = server_.call("POST", target, body);
    ASSERT_TRUE(reply.ok()) << target << ": " << reply.message();
  }

  // Returns the message with the results of the expressions for a status.
  std::string evaluate(const Json& status) {
    return server_.call("PATCH", jobs_ + "/bert/status?dryRun=All", {{"status", status}}).message();
  }

  // Returns the health as Flux determines it (StatusEvaluator in fluxcd/pkg/runtime/cel). A job without a status is
  // evaluated with an empty one; in Flux, its expressions fail, which means in progress, too.
  std::string health_of(const Json& job) {
    const Json status = job.value("status", Json::object());
    if (status.contains("observedGeneration") && status["observedGeneration"] != job["metadata"]["generation"])
      return "InProgress";
    const std::string message = evaluate(status);
    if (message.ends_with(" failed: true, current: false")) return "Failed";
    if (message.ends_with(" failed: false, current: true")) return "Current";
    if (message.ends_with(" failed: false, current: false")) return "InProgress";
    return message;
  }

  ApiServer server_{ApiServer::Parts::kApiOnly};
  std::string jobs_;
};

TEST_F(FluxHealth, EqualsThatOfArgoCd) {
  const std::map<std::string, std::string> expected = {
      {"Progressing", "InProgress"}, {"Degraded", "Failed"}, {"Healthy", "Current"}, {"Suspended", "Current"}};
  const Json tests = load(std::string(kExamples) + "health_test.yaml")["tests"];
  EXPECT_GE(tests.size(), 17U);
  for (const Json& test : tests) {
    const std::string path = test["inputPath"];
    EXPECT_EQ(health_of(load(kExamples + path)), expected.at(test["healthStatus"]["status"])) << path;
  }
}

}  // namespace
}  // namespace oarlock::test
