// The rights that manifests/install.yaml grants to the operator: enough for all it does, and none that it does not
// need. The same scenario runs with all of them, when no request is rejected, and once without each of them, when the
// API server rejects the requests that need it.
#include <gmock/gmock.h>

#include <algorithm>
#include <future>
#include <mutex>

#include "http/client/credentials.h"
#include "http/client/transport.h"
#include "kube/auth/kubeconfig.h"
#include "tests/support/empty_cluster.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/job_world.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

constexpr char kRbac[] = "/apis/rbac.authorization.k8s.io/v1/";
constexpr char kKueue[] = "/apis/kueue.x-k8s.io/v1beta2/";
constexpr char kSchedulerPlugins[] = "scheduling.x-k8s.io/v1alpha1";
constexpr char kVolcano[] = "scheduling.volcano.sh/v1beta1";
constexpr char kAccount[] = "operator";

// One verb on one resource, in one of the manifest's roles.
struct Permission {
  std::string role;
  size_t rule = 0;
  std::string verb;
  std::string group;
  std::string resource;

  // The message of the API server for a rejected request.
  std::string refusal() const {
    if (resource.ends_with("/finalizers")) return "you can't set finalizers on";
    return "cannot " + verb + " resource \"" + resource + "\" in API group \"" + group + "\"";
  }
};

std::vector<Permission> permissions_of(const std::string& role, const Json& rules) {
  std::vector<Permission> out;
  for (size_t i = 0; i < rules.size(); ++i) {
    const std::string group = rules[i]["apiGroups"].front();
    for (const std::string resource : rules[i]["resources"]) {
      for (const std::string verb : rules[i]["verbs"]) out.push_back({role, i, verb, group, resource});
    }
  }
  return out;
}

// Kubernetes serves no native PodGroups before version 1.37: the operator tries to list them, and makes no other
// request.
bool is_used(const Permission& permission) {
  return permission.group != "scheduling.k8s.io" || permission.resource != "podgroups" || permission.verb == "list";
}

Json without(Json rules, const Permission& permission) {
  Json& verbs = rules[permission.rule]["verbs"];
  verbs.erase(std::find(verbs.begin(), verbs.end(), permission.verb));
  if (verbs.empty()) rules.erase(rules.begin() + static_cast<std::ptrdiff_t>(permission.rule));
  return rules;
}

// A transport that records the API server's messages about forbidden requests.
class RefusalRecorder final : public http::Transport {
 public:
  explicit RefusalRecorder(std::shared_ptr<http::Transport> inner) : inner_(std::move(inner)) {}

  http::TransportResult<http::Response> send(const http::Request& request, http::Milliseconds deadline,
                                             std::stop_token cancel) override {
    return recorded(inner_->send(request, deadline, std::move(cancel)));
  }
  http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink& sink,
                                               http::StreamLimits limits, std::stop_token cancel) override {
    return recorded(inner_->stream(request, sink, limits, std::move(cancel)));
  }
  std::vector<std::string> refusals() const {
    const std::lock_guard lock(mutex_);
    return refusals_;
  }

 private:
  http::TransportResult<http::Response> recorded(http::TransportResult<http::Response> response) {
    if (response && response->status == 403) {
      const std::lock_guard lock(mutex_);
      refusals_.push_back(Json::parse(response->body).value("message", response->body));
    }
    return response;
  }

  const std::shared_ptr<http::Transport> inner_;
  mutable std::mutex mutex_;
  std::vector<std::string> refusals_;
};

// An operator with some permissions in a separate namespace.
class Rights {
 public:
  using Roles = std::map<std::string, Json>;  // by the name in the manifest, their rules

  Rights(ApiServer& server, std::string namespace_name, const Roles& roles)
      : server_(server), world_(server, std::move(namespace_name)) {
    world_.call("POST", core("serviceaccounts"), {{"metadata", {{"name", kAccount}}}});
    for (const auto& [name, rules] : roles) grant(name, rules);
    for (const auto& [name, rules] : roles) wait_until_granted(rules);
    token_ = world_.call("POST", core("serviceaccounts/") + kAccount + "/token",
                         {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenRequest"}})["status"]["token"];
    const auto config = kube::load_kubeconfig(server.kubeconfig());
    http::TransportOptions options = kube::transport_options(*config, "oarlock-test", std::make_shared<RealClock>());
    options.client_certificate = options.client_key = {};
    options.certificate.reset();
    options.token = std::make_shared<http::ConstantToken>(token_);
    auto transport = http::create_transport(std::move(options));
    if (!transport) throw std::runtime_error(transport.error().message);
    recorder_ = std::make_unique<RefusalRecorder>(std::move(*transport));
    proxy_ = std::make_unique<FaultProxy>(*recorder_);
    proxy_->refuse_watch_list();  // so that lists are needed, as with Kubernetes 1.32 and older
    proxy_->on_write([this](int, const auto& request) { return before(request); }, {});
    operator_ = std::make_unique<OperatorProcess>(
        std::vector<std::string>{"--kubeconfig", write_kubeconfig(directory_.path(), proxy_->url()), "--namespace",
                                 world_.namespace_name(), "--leader-elect", "--leader-elect-resource-namespace",
                                 world_.namespace_name(), "--protect-metrics", "--job-network-policy=[]",
                                 "--watch-nodes"},
        /*wait_until_ready=*/false);
    operator_->use_token(token_);
  }

  std::vector<std::string> refusals() const { return recorder_->refusals(); }
  bool refused(const std::string& words) const {
    const std::vector<std::string> all = refusals();
    return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.find(words) != std::string::npos; });
  }
  std::string log() const { return operator_->log(); }

  // Causes every request for which the operator has rights. Ends early when `enough` returns true.
  bool run(const std::function<bool()>& enough) {
    try {
      enough_ = enough;
      scenario();
      return true;
    } catch (const Enough&) {
      return true;
    } catch (const std::exception& error) {
      std::cerr << error.what() << '\n';
      return false;
    }
  }

 private:
  struct Enough {};

  std::string core(const std::string& what) const {
    return "/api/v1/namespaces/" + world_.namespace_name() + "/" + what;
  }

  void grant(const std::string& name, const Json& rules) {
    // Reviews, flavors, priority classes and nodes belong to no namespace.
    const bool everywhere = name.ends_with("-auth") || name.ends_with("-queues") || name.ends_with("-nodes");
    const std::string own = everywhere ? name + "-" + world_.namespace_name() : name;
    const std::string kind = everywhere ? "ClusterRole" : "Role";
    const std::string base = everywhere ? kRbac : kRbac + ("namespaces/" + world_.namespace_name() + "/");
    world_.call("POST", base + (everywhere ? "clusterroles" : "roles"),
                {{"metadata", {{"name", own}}}, {"rules", rules}});
    world_.call(
        "POST", base + (everywhere ? "clusterrolebindings" : "rolebindings"),
        {{"metadata", {{"name", own}}},
         {"roleRef", {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", kind}, {"name", own}}},
         {"subjects", {{{"kind", "ServiceAccount"}, {"name", kAccount}, {"namespace", world_.namespace_name()}}}}});
  }

  // The API server authorizes from a cache, which receives a role and its binding some time after they were accepted.
  void wait_until_granted(const Json& rules) {
    if (rules.empty()) return;
    const Json& rule = rules.back();
    const std::string resource = rule["resources"].back();
    const size_t slash = resource.find('/');
    Json attributes = {{"namespace", world_.namespace_name()},
                       {"group", rule["apiGroups"].back()},
                       {"resource", resource.substr(0, slash)},
                       {"verb", rule["verbs"].back()}};
    if (slash != std::string::npos) attributes["subresource"] = resource.substr(slash + 1);
    if (rule.contains("resourceNames")) attributes["name"] = rule["resourceNames"].back();
    const std::string user = "system:serviceaccount:" + world_.namespace_name() + ":" + kAccount;
    const Json review = {{"apiVersion", "authorization.k8s.io/v1"},
                         {"kind", "SubjectAccessReview"},
                         {"spec", {{"user", user}, {"resourceAttributes", attributes}}}};
    world_.wait("the permission " + attributes.dump(), [&] {
      return world_.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"] ==
             true;
    });
  }

  // A user changes the job that is about to be deleted, so that the operator must read it again.
  FaultProxy::Fate before(const HostileServer::Received& request) {
    const bool of_job = request.method == "DELETE" && request.target.find("/trainingjobs/") != std::string::npos;
    if (of_job && !changed_.exchange(true)) world_.patch_job("done", {{"metadata", {{"labels", {{"x", "y"}}}}}});
    return FaultProxy::Fate::kPass;
  }

  void until(const std::string& what, const std::function<bool()>& condition) {
    world_.wait(what, [&] { return enough_() || condition(); });
    if (enough_()) throw Enough{};
  }

  void create(const std::string& name, Json spec, const Json& labels = Json::object()) {
    spec["template"]["spec"]["containers"] = {{{"name", "trainer"}, {"image", "example.invalid/t"}}};
    if (!spec.contains("nodes")) spec["nodes"] = 1;
    world_.call("POST", world_.jobs(),
                {{"apiVersion", kApiVersion},
                 {"kind", kKind},
                 {"metadata", {{"name", name}, {"labels", labels}}},
                 {"spec", spec}});
  }
  void end_pod(const std::string& name, int exit_code) {
    until("pod " + name, [&] { return server_.call("GET", world_.pods() + "/" + name).ok(); });
    world_.set_pod(name, pod_ended(exit_code));
  }
  std::string policies() const {
    return "/apis/networking.k8s.io/v1/namespaces/" + world_.namespace_name() + "/networkpolicies";
  }
  std::string lease_path() const {
    return "/apis/coordination.k8s.io/v1/namespaces/" + world_.namespace_name() + "/leases/oarlock-operator";
  }
  void suspend(const std::string& name, bool value) {
    world_.patch_job(name, {{"spec", {{"suspend", value}}}});
    until("suspend", [&] { return (world_.status(name).value("phase", "") == "Suspended") == value; });
  }
  bool is_series(const std::string& name) {
    const Json events = world_.call("GET", "/apis/events.k8s.io/v1/namespaces/" + world_.namespace_name() + "/events");
    return std::any_of(events["items"].begin(), events["items"].end(), [&](const Json& event) {
      return event["regarding"]["kind"] == kKind && event["regarding"]["name"] == name && event.contains("series") &&
             !event["series"].is_null();
    });
  }
  bool has_job(const std::string& name) { return server_.call("GET", world_.jobs() + "/" + name).ok(); }

  // ---- as Kueue ---------------------------------------------------------------------------------------------------

  std::string workloads() const { return kKueue + ("namespaces/" + world_.namespace_name() + "/workloads"); }
  // Returns the Workload of the job; null if there is none.
  Json workload_of(const std::string& job) {
    const Json items = world_.call("GET", workloads() + "?labelSelector=" + kLabelJobName + "%3D" + job)["items"];
    return items.empty() ? Json() : items.front();
  }
  void admit(const std::string& job) {
    until("a Workload of " + job, [&] { return !workload_of(job).is_null(); });
    const Json status = {{"conditions", {pod_condition("QuotaReserved", true), pod_condition("Admitted", true)}},
                         {"admission",
                          {{"clusterQueue", "c"},
                           {"podSetAssignments", {{{"name", "nodes"}, {"count", 1}, {"flavors", {{"cpu", "f"}}}}}}}}};
    world_.call("PATCH", workloads() + "/" + workload_of(job)["metadata"]["name"].get<std::string>() + "/status",
                {{"status", status}});
  }
  bool is_finished(const std::string& job) {
    const Json conditions = workload_of(job)["status"]["conditions"];
    return std::any_of(conditions.begin(), conditions.end(),
                       [](const Json& one) { return one["type"] == "Finished" && one["status"] == "True"; });
  }

  // A job that its queue admits, and one that is suspended while it waits; each names a priority class of one kind.
  void run_queued_jobs() {
    create("queued", Json::object(), {{kLabelQueue, "q"}, {kLabelPriorityClass, "w"}});
    admit("queued");
    end_pod("queued-0-0", 0);
    until("the end in the Workload", [&] { return is_finished("queued"); });
    create("waiting", {{"template", {{"spec", {{"priorityClassName", "p"}}}}}}, {{kLabelQueue, "q"}});
    until("a Workload that waits", [&] { return !workload_of("waiting").is_null(); });
    world_.patch_job("waiting", {{"spec", {{"suspend", true}}}});
    until("the deletion of the Workload", [&] { return workload_of("waiting").is_null(); });
  }

  // ---- gang scheduling --------------------------------------------------------------------------------------------

  std::string pod_groups(const std::string& api) const {
    return "/apis/" + api + "/namespaces/" + world_.namespace_name() + "/podgroups";
  }

  // A job whose PodGroup's name is taken, so that the operator must read the owner, and one that is suspended.
  void run_gangs(const std::string& api, const std::string& name, const Json& pod_spec) {
    const Json spec = {{"nodes", 2}, {"template", {{"spec", pod_spec}}}};
    const std::string taken = name + "-taken";
    world_.call("POST", pod_groups(api),
                {{"apiVersion", api}, {"kind", "PodGroup"}, {"metadata", {{"name", taken + "-0"}}}});
    create(taken, spec);
    until("the reason of " + taken, [&] { return world_.has_condition(taken, "Pending", "True", "CreateRefused"); });
    create(name, spec);
    for (const char* rank : {"0", "1"})
      until("a pod of " + name, [&] { return world_.exists(world_.pods() + "/" + name + "-0-" + rank); });
    const std::string group = pod_groups(api) + "/" + name + "-0";
    until("a PodGroup of " + name, [&] { return world_.exists(group); });
    suspend(name, true);
    until("the deletion of the PodGroup", [&] { return !world_.exists(group); });
  }

  void scenario() {
    // Metrics are restricted to authorized clients, which the API server reviews.
    until("an answer about metrics", [&] { return operator_->get("/metrics").status == 403; });
    // Objects of other owners have the names, so that the operator must read their owners.
    world_.call("POST", core("services"), {{"metadata", {{"name", "taken"}}}, {"spec", {{"ports", {{{"port", 1}}}}}}});
    world_.call("POST", world_.pods(),
                {{"metadata", {{"name", "met-0-0"}}},
                 {"spec", {{"containers", {{{"name", "x"}, {"image", "example.invalid/x"}}}}}}});
    world_.call("POST", policies(),
                {{"metadata", {{"name", "trainingjob-walled"}}}, {"spec", {{"podSelector", Json::object()}}}});
    for (const char* name : {"taken", "met", "walled"}) create(name, Json::object());
    for (const std::string name : {"taken", "met", "walled"}) {
      until("trouble with " + name,
            [&] { return log().find("\"trainingjob\":\"" + name + "\"") != std::string::npos; });
    }
    // A failure: its pod is deleted, and another one made. The claim for checkpoints exists already.
    create("j", {{"failurePolicy", {{"maxRestarts", 3}, {"backoffSeconds", 0}}}, {"checkpoints", {{"size", "1Gi"}}}});
    end_pod("j-0-0", 1);
    until("another attempt", [&] { return server_.call("GET", world_.pods() + "/j-1-0").ok(); });
    // A user edits the job's NetworkPolicy.
    world_.call("PATCH", policies() + "/trainingjob-j", {{"spec", {{"ingress", Json::array()}}}});
    until("the repair", [&] {
      return !world_.call("GET", policies() + "/trainingjob-j")["spec"].value("ingress", Json::array()).empty();
    });
    // A repeated event becomes one Event with a series.
    for (int i = 0; i < 2; ++i) {
      suspend("j", true);
      suspend("j", false);
    }
    until("a series of events", [&] { return is_series("j"); });
    run_queued_jobs();
    run_gangs(kSchedulerPlugins, "gang", Json::object());
    run_gangs(kVolcano, "volcano", {{"schedulerName", "volcano"}});
    // The job ends and expires.
    create("done", {{"ttlSecondsAfterFinished", 0}});
    end_pod("done-0-0", 0);
    until("the end of the job", [&] { return !has_job("done"); });
    until("a leader that renews its lease", [&] {
      const Json lease = world_.call("GET", lease_path())["spec"];
      return lease["renewTime"] != lease["acquireTime"];
    });
  }

  ApiServer& server_;
  JobWorld world_;
  TemporaryDirectory directory_;
  std::string token_;
  std::unique_ptr<RefusalRecorder> recorder_;
  std::unique_ptr<FaultProxy> proxy_;
  std::atomic<bool> changed_ = false;
  std::function<bool()> enough_;
  std::unique_ptr<OperatorProcess> operator_;
};

class Rbac : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // OpenShift's check of owners that block a deletion, too.
    server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers,
                                          "--enable-admission-plugins=OwnerReferencesPermissionEnforcement");
    server_->apply(test::source_path("manifests/install.yaml"));
    install_kueue();
    install_pod_groups();
    const std::string role = std::string(kRbac) + "namespaces/oarlock-system/roles/";
    for (const char* name : {"oarlock-operator", "oarlock-operator-auth", "oarlock-operator-queues"})
      roles_[name] = server_->call("GET", kRbac + ("clusterroles/" + std::string(name))).body["rules"];
    // As with networkPolicy.jobs.enabled (charts/oarlock/tests/security_test.yaml).
    roles_["oarlock-operator"].push_back({{"apiGroups", {"networking.k8s.io"}},
                                          {"resources", {"networkpolicies"}},
                                          {"verbs", {"get", "list", "watch", "create", "update", "delete"}}});
    // As with operator.watchNodes (charts/oarlock/tests/rbac_test.yaml).
    roles_["oarlock-operator-nodes"] = {{{"apiGroups", {""}}, {"resources", {"nodes"}}, {"verbs", {"list", "watch"}}}};
    roles_["oarlock-operator-election"] = server_->call("GET", role + "oarlock-operator-election").body["rules"];
  }
  static void TearDownTestSuite() { server_.reset(); }

  // The kinds of Kueue, and the objects to which the admissions and the jobs refer.
  static void install_kueue() {
    server_->apply(test::data_path("kueue_crds.yaml"));
    const std::string scheduling = "/apis/scheduling.k8s.io/v1/";
    const std::pair<std::string, Json> objects[] = {
        {kKueue + std::string("resourceflavors"), {{"kind", "ResourceFlavor"}, {"metadata", {{"name", "f"}}}}},
        {kKueue + std::string("workloadpriorityclasses"),
         {{"kind", "WorkloadPriorityClass"}, {"metadata", {{"name", "w"}}}, {"value", 1}}},
        {scheduling + "priorityclasses", {{"kind", "PriorityClass"}, {"metadata", {{"name", "p"}}}, {"value", 1}}}};
    for (auto [target, object] : objects) {
      object["apiVersion"] = target.starts_with(scheduling) ? "scheduling.k8s.io/v1" : "kueue.x-k8s.io/v1beta2";
      // A new kind is served some time after its definition was accepted.
      if (!eventually([&] { return server_->call("POST", target, object).ok(); }))
        throw std::runtime_error("cannot create an object of " + target);
    }
    if (!eventually([] { return server_->call("GET", kKueue + std::string("workloads")).ok(); }))
      throw std::runtime_error("Workloads are not served");
  }

  static void install_pod_groups() {
    server_->apply(test::data_path("gang_crds.yaml"));
    for (const std::string api : {kSchedulerPlugins, kVolcano}) {
      if (!eventually([&] { return server_->call("GET", "/apis/" + api + "/podgroups").ok(); }))
        throw std::runtime_error("PodGroups of " + api + " are not served");
    }
  }

  static inline std::unique_ptr<ApiServer> server_;
  static inline Rights::Roles roles_;
};

TEST_F(Rbac, TheManifestsRightsAreEnough) {
  Rights rights(*server_, server_->make_namespace(), roles_);
  EXPECT_TRUE(rights.run([] { return false; })) << rights.log();
  EXPECT_THAT(rights.refusals(), IsEmpty());
}

// Several scenarios run concurrently, because each mostly waits.
TEST_F(Rbac, EveryPermissionIsNeeded) {
  constexpr size_t kConcurrent = 6;
  std::vector<Permission> permissions;
  for (const auto& [role, rules] : roles_) {
    for (Permission& one : permissions_of(role, rules)) {
      if (is_used(one)) permissions.push_back(std::move(one));
    }
  }
  ASSERT_GE(permissions.size(), 20U);
  std::vector<std::string> name_spaces;
  for (size_t i = 0; i < permissions.size(); ++i) name_spaces.push_back(server_->make_namespace());
  const auto check = [&](size_t i) {
    Rights::Roles roles = roles_;
    roles[permissions[i].role] = without(roles[permissions[i].role], permissions[i]);
    Rights rights(*server_, name_spaces[i], roles);
    const auto refused = [&] { return rights.refused(permissions[i].refusal()); };
    EXPECT_TRUE(rights.run(refused)) << permissions[i].refusal() << "\n" << rights.log();
    EXPECT_TRUE(refused()) << "nothing needs it: " << permissions[i].refusal() << "; refused were "
                           << ::testing::PrintToString(rights.refusals());
  };
  for (size_t begin = 0; begin < permissions.size(); begin += kConcurrent) {
    std::vector<std::future<void>> running;
    for (size_t i = begin; i < std::min(begin + kConcurrent, permissions.size()); ++i)
      running.push_back(std::async(std::launch::async, check, i));
    for (std::future<void>& one : running) one.get();
  }
}

}  // namespace
}  // namespace oarlock::test
