#include "tests/bench/operator/server.h"

#include <chrono>
#include <stdexcept>

#include "common/clock.h"
#include "http/client/transport.h"
#include "kube/auth/kubeconfig.h"

namespace oarlock::bench {
namespace {

constexpr std::chrono::seconds kDeadline{60};
constexpr char kJson[] = "application/json";

std::runtime_error failed(const http::Request& request, const std::string& why) {
  return std::runtime_error(request.method + " " + request.target + ": " + why);
}

}  // namespace

Server::Server(const std::string& kubeconfig, const std::string& user_agent) {
  const auto config = kube::load_kubeconfig(kubeconfig);
  if (!config) throw std::runtime_error(config.error().message);
  auto transport = http::create_transport(kube::transport_options(*config, user_agent, std::make_shared<RealClock>()));
  if (!transport) throw std::runtime_error(transport.error().message);
  transport_ = std::move(*transport);
}

http::Response Server::call(const http::Request& request) {
  auto response = transport_->send(request, kDeadline, {});
  if (!response) throw failed(request, response.error().message);
  return std::move(*response);
}

nlohmann::json Server::get(const std::string& target) {
  const http::Request request{"GET", target, "", ""};
  const http::Response response = call(request);
  if (!response.ok()) throw failed(request, response.body);
  return nlohmann::json::parse(response.body);
}

nlohmann::json Server::post(const std::string& target, const std::string& body) {
  const http::Request request{"POST", target, body, kJson};
  const http::Response response = call(request);
  if (!response.ok()) throw failed(request, response.body);
  return nlohmann::json::parse(response.body);
}

void Server::remove(const std::string& target) {
  constexpr char kOptions[] = R"({"gracePeriodSeconds":0,"propagationPolicy":"Background"})";
  const http::Request request{"DELETE", target, kOptions, kJson};
  const http::Response response = call(request);
  if (!response.ok() && response.status != 404) throw failed(request, response.body);
}

}  // namespace oarlock::bench
