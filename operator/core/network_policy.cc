#include "operator/core/network_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "operator/core/desired.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

void remove_absent(Json& value) {
  if (!value.is_structured()) return;
  for (auto it = value.begin(); it != value.end();) {
    remove_absent(*it);
    const bool is_absent = value.is_object() && (it->is_null() || (it->is_array() && it->empty()));
    it = is_absent ? value.erase(it) : std::next(it);
  }
}

bool is_peer(const Json& value) {
  constexpr std::string_view kFields[] = {"podSelector", "namespaceSelector", "ipBlock"};
  if (!value.is_object() || value.empty()) return false;
  return std::ranges::all_of(value.items(), [&](const auto& item) {
    return item.value().is_object() && std::ranges::find(kFields, item.key()) != std::end(kFields);
  });
}

}  // namespace

std::string network_policy_name(std::string_view job) { return fmt::format("trainingjob-{}", job); }

Json desired_network_policy(const Job& job, std::string_view peers) {
  const Json own_pods = {{"matchLabels", {{kLabelJobName, job.metadata.name}}}};
  Json ingress = Json::array({{{"from", Json::array({{{"podSelector", own_pods}}})}}});
  Json from = Json::parse(peers, nullptr, false);
  // A rule without peers would admit everybody.
  if (from.is_array() && !from.empty()) {
    Json ports = {{"port", metrics_port(job)}, {"protocol", "TCP"}};
    if (job.spec.processes_per_node > 1) ports["endPort"] = metrics_port(job) + job.spec.processes_per_node - 1;
    ingress.push_back({{"from", std::move(from)}, {"ports", Json::array({std::move(ports)})}});
  }
  return {{"apiVersion", "networking.k8s.io/v1"},
          {"kind", "NetworkPolicy"},
          {"metadata",
           {{"name", network_policy_name(job.metadata.name)},
            {"namespace", job.metadata.name_space},
            {"labels", {{kLabelJobName, job.metadata.name}, {kLabelManagedBy, kManagedByOarlock}}},
            {"ownerReferences", Json::array({owner_reference(job)})}}},
          {"spec",
           {{"podSelector", own_pods}, {"policyTypes", Json::array({"Ingress"})}, {"ingress", std::move(ingress)}}}};
}

// FNV-1a. Whoever could make a collision may edit the namespace's NetworkPolicies, and add others, anyway.
std::string spec_digest(const Json& spec) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : text_of(spec)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001B3ULL;
  }
  return fmt::format("{:016x}", hash);
}

Result<std::string> read_metrics_peers(std::string_view json) {
  Json peers = Json::parse(json, nullptr, false);
  if (!peers.is_array() || !std::ranges::all_of(peers, is_peer)) {
    return fail(ExitCode::kUsage,
                fmt::format("'{}' is not a JSON list of NetworkPolicy peers; each is an object with podSelector, "
                            "namespaceSelector or ipBlock",
                            json));
  }
  remove_absent(peers);
  return text_of(peers);
}

}  // namespace oarlock::control
