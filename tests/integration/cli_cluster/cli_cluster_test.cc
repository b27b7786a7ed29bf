// The commands that work on a cluster, against a real kube-apiserver. The test writes the status of jobs and pods, as
// the operator and the kubelets do.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "common/clock.h"
#include "tests/support/documented_commands.h"
#include "tests/support/job_world.h"
#include "tests/support/paths.h"
#include "yaml/reader.h"

namespace oarlock::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

constexpr char kJob[] = R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: bert, labels: {team: vision}}
spec:
  nodes: 2
  template: {spec: {containers: [{name: trainer, image: x, env: [{name: A, value: "1"}]}]}}
)";

struct Ended {
  int code = 0;
  std::string out;
  std::string err;
};

class CliCluster : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kApiOnly); }
  static void TearDownTestSuite() { server_.reset(); }

  static Ended run(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {}) {
    arguments.insert(arguments.begin(), oarlock());
    Program program(arguments, {.environment = environment, .directory = ""});
    Ended ended;
    ended.code = program.wait();
    ended.out = program.out();
    ended.err = program.err();
    return ended;
  }
  // Runs a command in the namespace of the test, as an administrator.
  Ended in_namespace(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--kubeconfig", server_->kubeconfig(), "-n", world_.namespace_name()});
    return run(std::move(arguments));
  }
  std::string write(const std::string& name, const std::string& text) const {
    const fs::path path = directory_.path() / name;
    std::ofstream(path) << text;
    return path.string();
  }

  // The status of a running job at step 42 of 100.
  Json running_status() const {
    const std::string now = to_rfc3339(RealClock().now());
    return {{"phase", "Running"},
            {"attempt", 0},
            {"attemptStartTime", now},
            {"nodes", {{"desired", 2}, {"ready", 2}, {"summary", "2/2"}}},
            {"progress", {{"step", 42}, {"targetSteps", 100}, {"checkpointStep", 40}, {"completed", "42%"}}},
            {"conditions", Json::array({{{"type", "Running"},
                                         {"status", "True"},
                                         {"reason", "PodsRunning"},
                                         {"message", "all pods have started"},
                                         {"lastTransitionTime", now}}})}};
  }
  void set_status(const std::string& name, const Json& status) {
    world_.call("PATCH", world_.jobs() + "/" + name + "/status", {{"status", status}});
  }
  // Creates the pod of a node rank as the operator does, with the owner reference and the labels.
  void create_pod(const std::string& job, int attempt, int node_rank, const Json& status) {
    const Json owner = world_.job(job);
    const std::string name = fmt::format("{}-{}-{}", job, attempt, node_rank);
    world_.call("POST", world_.pods(),
                {{"metadata",
                  {{"name", name},
                   {"labels",
                    {{kLabelJobName, job},
                     {kLabelAttempt, std::to_string(attempt)},
                     {kLabelNodeRank, std::to_string(node_rank)}}},
                   {"ownerReferences", Json::array({{{"apiVersion", kApiVersion},
                                                     {"kind", kKind},
                                                     {"name", job},
                                                     {"uid", owner["metadata"]["uid"]},
                                                     {"controller", true}}})}}},
                 {"spec",
                  {{"nodeName", "gpu-7"},
                   {"automountServiceAccountToken", false},
                   {"containers", Json::array({{{"name", kTrainerContainer}, {"image", "x"}}})}}}});
    world_.set_pod(name, status);
  }

  static inline std::unique_ptr<ApiServer> server_;
  JobWorld world_{*server_, make_namespace()};
  const TemporaryDirectory directory_;

 private:
  // Without controllers, pods need their service account to be created by hand.
  static std::string make_namespace() {
    const std::string name = server_->make_namespace();
    server_->call("POST", "/api/v1/namespaces/" + name + "/serviceaccounts", {{"metadata", {{"name", "default"}}}});
    return name;
  }
};

// ---- Jobs ----------------------------------------------------------------------------------------------------------

TEST_F(CliCluster, SubmitsAndLists) {
  const std::string file = write("job.yaml", kJob);
  const Ended dry = in_namespace({"submit", "-f", file, "--dry-run", "server"});
  EXPECT_EQ(dry.out, "trainingjob.oarlock.dev/bert created (server dry run)\n") << dry.err;
  EXPECT_FALSE(world_.exists(world_.jobs() + "/bert"));
  const Ended created = in_namespace({"submit", "-f", file});
  EXPECT_EQ(created.code, 0) << created.err;
  EXPECT_EQ(created.out, "trainingjob.oarlock.dev/bert created\n");
  EXPECT_EQ(world_.job("bert")["spec"]["nodes"], 2);
  EXPECT_EQ(world_.job("bert")["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"], "1");

  const Ended again = in_namespace({"submit", "-f", file});
  EXPECT_EQ(again.code, 73);
  EXPECT_THAT(again.err, AllOf(HasSubstr("already exists"), HasSubstr("--apply")));
  EXPECT_EQ(in_namespace({"submit", "-f", file, "--apply", "-o", "name"}).out, "trainingjob.oarlock.dev/bert\n");
  // A suspended job may change, fields that the first submit set too.
  EXPECT_EQ(in_namespace({"suspend", "bert"}).code, 0);
  set_status("bert", {{"phase", "Suspended"}});
  std::string changed = kJob;
  changed.replace(changed.find("nodes: 2"), 8, "nodes: 3");
  const Ended applied = in_namespace({"submit", "-f", write("changed.yaml", changed), "--apply"});
  EXPECT_EQ(applied.code, 0) << applied.err;
  EXPECT_EQ(applied.out, "trainingjob.oarlock.dev/bert applied\n");
  EXPECT_EQ(world_.job("bert")["spec"]["nodes"], 3);
  EXPECT_EQ(world_.job("bert")["spec"]["suspend"], true) << "the file does not have this field";

  set_status("bert", running_status());
  const Ended list = in_namespace({"list"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, AllOf(StartsWith("NAME   STATE     READY   STEP   PROGRESS   RESTARTS   AGE\nbert   Running   "
                                         "2/2     42     42%        0 "),
                              Not(HasSubstr("\x1b"))));
  EXPECT_THAT(in_namespace({"list", "-o", "wide"}).out, HasSubstr("PodsRunning"));
  EXPECT_EQ(in_namespace({"list", "-l", "team=vision", "-o", "name"}).out, "trainingjob.oarlock.dev/bert\n");
  EXPECT_EQ(in_namespace({"list", "-l", "team=audio", "-o", "name"}).out, "");
  const Json items = Json::parse(in_namespace({"list", "-o", "json"}).out)["items"];
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0]["kind"], kKind);
  EXPECT_FALSE(items[0]["metadata"].contains("managedFields"));
  const Ended everywhere = run({"list", "-A", "--kubeconfig", server_->kubeconfig()});
  EXPECT_THAT(everywhere.out, AllOf(StartsWith("NAMESPACE"), HasSubstr(world_.namespace_name())));
}

TEST_F(CliCluster, SubmitCreatesNothingFromInvalidFiles) {
  const std::string good = write("good.yaml", kJob);
  std::string text = kJob;
  text.replace(text.find("nodes: 2"), 8, "nodse: 2");
  const Ended invalid = in_namespace({"submit", "-f", good, write("bad.yaml", text)});
  EXPECT_EQ(invalid.code, 78);
  EXPECT_THAT(invalid.err, AllOf(HasSubstr("bad.yaml:5:3"), HasSubstr("did you mean 'nodes'?")));
  EXPECT_FALSE(world_.exists(world_.jobs() + "/bert"));
  // The API server decides: this program evaluates no admission policies and no newer rules.
  const Ended refused = in_namespace({"submit", "-f", good, "--as", "stranger"});
  EXPECT_EQ(refused.code, 77);
  EXPECT_THAT(refused.err, HasSubstr("cannot create trainingjobs.oarlock.dev 'bert'"));
}

TEST_F(CliCluster, SubmitLeavesOtherKindsToKubectl) {
  const Ended mixed = in_namespace(
      {"submit", "-f",
       write("mixed.yaml", std::string("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\n") + kJob)});
  EXPECT_EQ(mixed.code, 0) << mixed.err;
  EXPECT_THAT(mixed.err, HasSubstr("ConfigMap 'c' is not created"));
}

TEST_F(CliCluster, SubmitReadsPipes) {
  const std::string file = write("job.yaml", kJob);
  const auto submit = [&](const std::string& script) {
    Program program({"/bin/bash", "-c",
                     fmt::format("oarlock() {{ '{}' \"$@\" --kubeconfig '{}' -n '{}'; }}\n{}", oarlock(),
                                 server_->kubeconfig(), world_.namespace_name(), script)});
    EXPECT_EQ(program.wait(), 0) << program.err();
    return program.out();
  };
  EXPECT_EQ(submit(fmt::format("oarlock submit -f <(cat '{}')", file)), "trainingjob.oarlock.dev/bert created\n");
  EXPECT_EQ(submit(fmt::format("cat '{}' | oarlock submit -f - --apply", file)),
            "trainingjob.oarlock.dev/bert applied\n");
}

TEST_F(CliCluster, ShowsStatus) {
  world_.create_job("bert");
  set_status("bert", running_status());
  create_pod("bert", 0, 0, pod_running());
  create_pod("bert", 0, 1, pod_running());
  const Ended status = in_namespace({"status", "bert"});
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_THAT(status.out, AllOf(HasSubstr("State:       Running"), HasSubstr("42%  step 42/100"),
                                HasSubstr("Checkpoint:  step 40 in"), HasSubstr("bert-0-0"), HasSubstr("gpu-7"),
                                Not(HasSubstr("Note:"))));
  EXPECT_EQ(Json::parse(in_namespace({"status", "bert", "-o", "json"}).out)["status"]["progress"]["step"], 42);
  EXPECT_THAT(in_namespace({"status", "tj/bert", "-o", "yaml"}).out, HasSubstr("kind: TrainingJob\n"));
}

TEST_F(CliCluster, ExplainsFailure) {
  world_.create_job("bert");
  const std::string message = "pod bert-0-1 on gpu-7 ended with exit code 137 (OOMKilled)";
  Json status = running_status();
  status["phase"] = "Failed";
  status["conditions"][0]["type"] = "Failed";
  status["conditions"][0]["reason"] = "MaxRestartsExceeded";
  status["conditions"][0]["message"] = message;
  status["attempts"] = Json::array({{{"attempt", 0},
                                     {"endTime", "2026-11-23T06:00:00Z"},
                                     {"reason", "OOMKilled"},
                                     {"message", message},
                                     {"pod", "bert-0-1"},
                                     {"node", "gpu-7"},
                                     {"nodeRank", 1},
                                     {"exitCode", 137}}});
  set_status("bert", status);
  Json ended = pod_ended(137);
  ended["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled";
  create_pod("bert", 0, 1, ended);
  world_.call("POST", "/api/v1/namespaces/" + world_.namespace_name() + "/events",
              {{"metadata", {{"name", "e1"}}},
               {"involvedObject", {{"kind", "Pod"}, {"name", "bert-0-1"}, {"namespace", world_.namespace_name()}}},
               {"type", "Warning"},
               {"reason", "OOMKilling"},
               {"message", "Memory cgroup out of memory"}});
  const Ended why = in_namespace({"why", "bert"});
  EXPECT_EQ(why.code, 0) << why.err;
  EXPECT_THAT(why.out, AllOf(StartsWith("bert failed: rank 1 ran out of memory\n"), HasSubstr("pod bert-0-1"),
                             HasSubstr("137: ended by signal 9 (SIGKILL)"),
                             HasSubstr("event OOMKilling of Pod bert-0-1: Memory cgroup out of memory"),
                             HasSubstr("node gpu-7 no longer exists"), HasSubstr("limits.memory")));
  const Json document = Json::parse(in_namespace({"why", "bert", "-o", "json"}).out);
  EXPECT_EQ(document["cause"], "OutOfMemory");
  EXPECT_EQ(document["rank"], 1);
}

TEST_F(CliCluster, SuspendsResumesAndDeletes) {
  world_.create_job("bert");
  EXPECT_EQ(in_namespace({"suspend", "bert"}).out, "trainingjob.oarlock.dev/bert suspended\n");
  EXPECT_EQ(world_.job("bert")["spec"]["suspend"], true);
  EXPECT_EQ(in_namespace({"suspend", "bert"}).out, "trainingjob.oarlock.dev/bert is already suspended\n");
  EXPECT_EQ(in_namespace({"resume", "bert"}).out, "trainingjob.oarlock.dev/bert resumed\n");
  EXPECT_EQ(world_.job("bert")["spec"]["suspend"], false);
  Json status = running_status();
  status["phase"] = "Complete";
  set_status("bert", status);
  const Ended ended = in_namespace({"suspend", "bert"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("has ended (Complete)"));
  const Ended deleted = in_namespace({"delete", "missing", "bert", "--wait", "--timeout", "30s"});
  EXPECT_EQ(deleted.code, 66) << deleted.err;
  EXPECT_THAT(deleted.err, HasSubstr("oarlock delete: error: TrainingJob 'missing' does not exist"));
  EXPECT_FALSE(world_.exists(world_.jobs() + "/bert")) << "an error of one job must not keep the others";
  EXPECT_EQ(in_namespace({"delete", "bert"}).code, 66);
}

TEST_F(CliCluster, WaitsForStates) {
  world_.create_job("bert");
  const Ended late = in_namespace({"wait", "bert", "--for", "running", "--timeout", "10ms"});
  EXPECT_EQ(late.code, 75);
  EXPECT_THAT(late.err, HasSubstr("bert is not running"));
  Program waiting({oarlock(), "wait", "bert", "--timeout", "50s", "--kubeconfig", server_->kubeconfig(), "-n",
                   world_.namespace_name()});
  Json status = running_status();
  set_status("bert", status);
  EXPECT_EQ(in_namespace({"wait", "bert", "--for", "running"}).out, "trainingjob.oarlock.dev/bert is running\n");
  status["phase"] = "Complete";
  status["conditions"][0]["type"] = "Complete";
  set_status("bert", status);
  EXPECT_EQ(waiting.wait(), 0) << waiting.err();
  EXPECT_EQ(waiting.out(), "trainingjob.oarlock.dev/bert is complete\n");
  const Ended missed = in_namespace({"wait", "bert", "--for", "failed"});
  EXPECT_EQ(missed.code, 1);
  EXPECT_THAT(missed.err, HasSubstr("bert is not failed: Complete"));
}

// ---- Clusters and users --------------------------------------------------------------------------------------------

TEST_F(CliCluster, UsesContextsTokensPluginsAndImpersonation) {
  world_.create_job("bert");
  // A user who may read the jobs of this namespace, and nothing else.
  const std::string namespace_name = world_.namespace_name();
  const std::string rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace_name;
  world_.call(
      "POST", rbac + "/roles",
      {{"metadata", {{"name", "reader"}}},
       {"rules", Json::array({{{"apiGroups", {kGroup}}, {"resources", {kPlural}}, {"verbs", {"get", "list"}}}})}});
  world_.call("POST", rbac + "/rolebindings",
              {{"metadata", {{"name", "reader"}}},
               {"roleRef", {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "Role"}, {"name", "reader"}}},
               {"subjects",
                Json::array({{{"kind", "ServiceAccount"}, {"name", "default"}, {"namespace", namespace_name}},
                             {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "Group"}, {"name", "readers"}}})}});
  const std::string token =
      world_.call("POST", "/api/v1/namespaces/" + namespace_name + "/serviceaccounts/default/token",
                  {{"apiVersion", "authentication.k8s.io/v1"},
                   {"kind", "TokenRequest"},
                   {"spec", Json::object()}})["status"]["token"];
  const std::string plugin = write(
      "plugin",
      "#!/bin/sh\necho "
      "'{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"" +
          token + "\"}}'\n");
  fs::permissions(plugin, fs::perms::owner_all);

  // The kubeconfig of the administrator, with two more users and their contexts.
  const auto documents = yaml::load_all(server_->kubeconfig());
  ASSERT_TRUE(documents);
  Json config = documents->front().to_json();
  const std::string cluster = config["clusters"][0]["name"];
  config["users"].push_back({{"name", "token"}, {"user", {{"token", token}}}});
  config["users"].push_back(
      {{"name", "plugin"},
       {"user",
        {{"exec",
          {{"apiVersion", "client.authentication.k8s.io/v1"}, {"command", plugin}, {"interactiveMode", "Never"}}}}}});
  for (const char* user : {"token", "plugin"})
    config["contexts"].push_back(
        {{"name", user}, {"context", {{"cluster", cluster}, {"user", user}, {"namespace", namespace_name}}}});
  const std::string file = write("config", config.dump());

  for (const char* context : {"token", "plugin"}) {
    const Ended list = run({"list", "-o", "name", "--context", context}, {{"KUBECONFIG", file}});
    EXPECT_EQ(list.out, "trainingjob.oarlock.dev/bert\n") << context << ": " << list.err;
    const Ended forbidden = run({"suspend", "bert", "--context", context}, {{"KUBECONFIG", file}});
    EXPECT_EQ(forbidden.code, 77) << context;
    EXPECT_THAT(forbidden.err, HasSubstr("this needs a role with the verb patch for trainingjobs.oarlock.dev"))
        << context;
  }
  // Status and why work without the right to read pods, events and nodes.
  const Ended status = run({"status", "bert", "--context", "token"}, {{"KUBECONFIG", file}});
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("Note: cannot list pods in namespace"));
  const Ended why = run({"why", "bert", "--context", "token"}, {{"KUBECONFIG", file}});
  EXPECT_EQ(why.code, 0) << why.err;
  EXPECT_THAT(why.err, HasSubstr("note: cannot list events"));

  const Ended impersonated = in_namespace({"list", "-o", "name", "--as", "jane", "--as-group", "readers"});
  EXPECT_EQ(impersonated.out, "trainingjob.oarlock.dev/bert\n") << impersonated.err;
  const Ended stranger = in_namespace({"list", "--as", "jane"});
  EXPECT_EQ(stranger.code, 77);
  EXPECT_THAT(stranger.err, HasSubstr("jane"));
  const Ended unknown = run({"list", "--context", "tokne"}, {{"KUBECONFIG", file}});
  EXPECT_EQ(unknown.code, 78);
  EXPECT_THAT(unknown.err, HasSubstr("no context named 'tokne'; the contexts are: "));
}

TEST_F(CliCluster, ReportsMissingJobsAndUnreachableServers) {
  world_.create_job("bert");
  const Ended typo = in_namespace({"status", "brt"});
  EXPECT_EQ(typo.code, 66);
  EXPECT_THAT(typo.err, HasSubstr("did you mean 'bert'?"));
  const Ended elsewhere = run({"status", "bert", "-n", "default", "--kubeconfig", server_->kubeconfig()});
  EXPECT_EQ(elsewhere.code, 66);
  EXPECT_THAT(elsewhere.err, HasSubstr("there is one in namespace"));
  const Ended unreachable = run({"list", "--request-timeout", "5s", "--kubeconfig",
                                 write("far",
                                       "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: "
                                       "[{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n")});
  EXPECT_EQ(unreachable.code, 69);
  EXPECT_THAT(unreachable.err, AllOf(HasSubstr("https://127.0.0.1:1"), HasSubstr("choose another --context")));
  const Ended nowhere = run({"list"}, {{"HOME", directory_.path().string()}});
  EXPECT_EQ(nowhere.code, 78);
  EXPECT_THAT(nowhere.err, HasSubstr("no cluster is configured"));
  EXPECT_EQ(in_namespace({"logs", "bert"}).code, 66);
  EXPECT_EQ(in_namespace({"top", "bert"}).code, 66);
  EXPECT_EQ(in_namespace({"status", "No_Name"}).code, 64);
}

TEST_F(CliCluster, DocumentedCommandsWork) {
  write("job.yaml", kJob);
  const std::vector<std::string> commands = documented_commands(test::source_path("docs/cli.md"), "cli_cluster_test");
  ASSERT_GE(commands.size(), 8u);
  for (const std::string& command : commands) {
    std::vector<std::string> words = words_of(command);
    ASSERT_EQ(words.front(), "oarlock");
    words.front() = oarlock();
    words.insert(words.end(), {"--kubeconfig", server_->kubeconfig(), "-n", world_.namespace_name()});
    Program program(words, {.environment = {}, .directory = directory_.path()});
    EXPECT_EQ(program.wait(), 0) << command << ": " << program.err();
    if (words[1] == "submit") set_status("bert", running_status());
  }
}

TEST_F(CliCluster, IsPluginOfKubectl) {
  Program plugin({test::program_path("kubectl-oarlock"), "list", "--kubeconfig", server_->kubeconfig(), "-n",
                  world_.namespace_name()});
  EXPECT_EQ(plugin.wait(), 0) << plugin.err();
  EXPECT_THAT(plugin.err(), HasSubstr("there are no TrainingJobs in namespace " + world_.namespace_name()));
}

TEST_F(CliCluster, EveryCommandHasExamples) {
  for (const char* command :
       {"submit", "list", "status", "why", "top", "logs", "wait", "suspend", "resume", "delete"}) {
    const Ended help = run({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.out, AllOf(HasSubstr("usage: oarlock " + std::string(command)),
                                HasSubstr("examples:\n  oarlock " + std::string(command)), HasSubstr("--context"),
                                HasSubstr("--kubeconfig")))
        << command;
  }
}

}  // namespace
}  // namespace oarlock::test
