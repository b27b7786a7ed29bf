#include "tests/support/api_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "common/clock.h"
#include "http/client/credentials.h"
#include "http/client/transport.h"
#include "kube/auth/kubeconfig.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using namespace std::chrono_literals;

const std::string kCluster = test::source_path("scripts/cluster");

// The port in the line with this message; 0 if there is none.
int logged_port(const std::string& log, const std::string& message) {
  const size_t line = log.find("\"msg\":\"" + message + "\"");
  const std::string key = "\"port\":";
  const size_t at = line == std::string::npos ? line : log.find(key, line);
  return at == std::string::npos ? 0 : std::stoi(log.substr(at + key.size()));
}

void run(const std::vector<std::string>& argv, const ProgramOptions& options = {}) {
  Program program(argv, options);
  if (const int code = program.wait(); code != 0) {
    throw std::runtime_error(argv[0] + " ended with " + std::to_string(code) + ":\n" + program.out() + program.err());
  }
}

nlohmann::json parsed(const std::string& text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  return json.is_discarded() ? nlohmann::json(text) : json;
}

}  // namespace

ApiServer::ApiServer(Parts parts, const std::string& arguments, Family family) : parts_(parts) {
  // Ends the cluster when this process has ended in whatever way: a crashed test must leave no apiserver behind. It
  // runs in a separate session, so that signals to this one do not end it.
  const std::string watch = "exec setsid sh -c 'while kill -0 " + std::to_string(::getpid()) +
                            " 2>/dev/null; do sleep 1; done; " + kCluster + " down --dir " + directory() +
                            "' >/dev/null 2>&1 &";
  run({"/bin/sh", "-c", watch});
  std::vector<std::string> up = {kCluster,
                                 "up",
                                 parts == Parts::kApiOnly ? "--api-only" : "--control-plane-only",
                                 "--apply",
                                 test::source_path("manifests/crd"),
                                 "--dir",
                                 directory()};
  // Services of both families, as large clusters have them; the cluster of the e2e tests has IPv4 alone.
  std::string flags = "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112 ";
  if (family == Family::kIpv6) {
    up.emplace_back("--ipv6");
    flags.clear();
  }
  run(up, {.environment = {{"OARLOCK_APISERVER_ARGS", flags + arguments}}, .directory = ""});
  const auto config = kube::load_kubeconfig(kubeconfig());
  if (!config) throw std::runtime_error(config.error().message);
  auto transport =
      http::create_transport(kube::transport_options(*config, "oarlock-test", std::make_shared<RealClock>()));
  if (!transport) throw std::runtime_error(transport.error().message);
  transport_ = std::move(*transport);
  // Established, and served a moment later.
  if (!eventually([&] { return call("GET", "/apis/oarlock.dev/v1alpha1/trainingjobs").ok(); }))
    throw std::runtime_error("TrainingJobs are not served");
}

ApiServer::~ApiServer() {
  transport_.reset();
  try {
    run({kCluster, "down", "--dir", directory()});
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

std::string ApiServer::kubeconfig() const { return directory() + "/admin.kubeconfig"; }

Reply ApiServer::call(const std::string& method, const std::string& target, const nlohmann::json& body) {
  http::Request request{.method = method, .target = target, .body = "", .content_type = "application/json"};
  if (!body.is_null()) request.body = body.dump();
  if (method == "PATCH") request.content_type = "application/merge-patch+json";
  const auto response = transport_->send(request, 30s, {});
  if (!response) throw std::runtime_error(method + " " + target + ": " + response.error().message);
  return {response->status, parsed(response->body)};
}

void ApiServer::apply(const std::string& manifest) {
  run({directory() + "/bin/kubectl", "apply", "-f", manifest},
      {.environment = {{"KUBECONFIG", kubeconfig()}}, .directory = ""});
}

std::string ApiServer::make_namespace() {
  const std::string name = "test-" + std::to_string(namespaces_++);
  const Reply made = call("POST", "/api/v1/namespaces", {{"metadata", {{"name", name}}}});
  if (!made.ok()) throw std::runtime_error("namespace " + name + ": " + made.message());
  if (parts_ == Parts::kWithControllers) {
    const std::string account = "/api/v1/namespaces/" + name + "/serviceaccounts/default";
    if (!eventually([&] { return call("GET", account).ok(); }))
      throw std::runtime_error("no service account in " + name);
  }
  return name;
}

OperatorProcess::OperatorProcess(std::vector<std::string> arguments, bool wait_until_ready, const OperatorPlace& place)
    : host_(place.listen_address.empty() ? "[::1]" : place.listen_address) {
  const char* program = std::getenv("OARLOCK_OPERATOR_PROGRAM");  // a variant of it
  std::vector<std::string> argv{test::program_path(program != nullptr ? program : "oarlock-operator"), "--port", "0"};
  if (!place.listen_address.empty()) argv.insert(argv.end(), {"--listen-address", place.listen_address});
  for (std::string& argument : arguments) argv.push_back(std::move(argument));
  program_ =
      std::make_unique<Program>(std::move(argv), ProgramOptions{.environment = place.environment, .directory = ""});
  const std::string wanted = wait_until_ready ? "\"msg\":\"ready\"" : "\"msg\":\"listening\"";
  if (!eventually([&] { return logged(wanted) || !alive(program_->pid()); }) || !logged(wanted)) {
    throw std::runtime_error("the operator does not start:\n" + log());
  }
}

int OperatorProcess::port() const { return logged_port(log(), "listening"); }

int OperatorProcess::health_port() const { return logged_port(log(), "listening for probes"); }

Reply OperatorProcess::get(const std::string& path) const {
  http::TransportOptions options;
  options.server = std::string(authority_.empty() ? "http" : "https") + "://" + host_ + ":" + std::to_string(port());
  if (!authority_.empty()) options.ca.text = authority_;
  if (!token_.empty()) options.token = std::make_shared<http::ConstantToken>(token_);
  auto transport = http::create_transport(std::move(options));
  if (!transport) throw std::runtime_error(transport.error().message);
  const auto response = (*transport)->send({.method = "GET", .target = path, .body = "", .content_type = ""}, 10s, {});
  if (!response) throw std::runtime_error(response.error().message);
  return {response->status, response->body};
}

double OperatorProcess::metric(const std::string& name, const std::vector<std::string>& labels) const {
  std::istringstream text(get("/metrics").body.get<std::string>());
  double sum = 0;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with(name + "{") && !line.starts_with(name + " ")) continue;
    bool all = true;
    for (const std::string& label : labels) all = all && line.find(label) != std::string::npos;
    if (all) sum += std::stod(line.substr(line.rfind(' ') + 1));
  }
  return sum;
}

}  // namespace oarlock::test
