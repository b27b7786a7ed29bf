#include "operator/core/pod_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/resources.h"
#include "common/json_access.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

void set_amounts(PodRequests& requests, const Json& quantities) {
  if (!quantities.is_object()) return;
  for (const auto& [name, quantity] : quantities.items()) requests[name] = api::quantity_value(quantity);
}

// Returns the requests of a container, or those in the resources of a PodSpec.
PodRequests requests_of(const Json& owner) {
  PodRequests out;
  for (const char* key : {"limits", "requests"}) set_amounts(out, member(member(owner, "resources"), key));
  return out;
}

void add(PodRequests& requests, const PodRequests& more) {
  for (const auto& [name, amount] : more) requests[name] += amount;
}

void raise_to(PodRequests& requests, const PodRequests& minimum) {
  for (const auto& [name, amount] : minimum) requests[name] = std::max(requests[name], amount);
}

}  // namespace

PodRequests pod_requests(const Json& pod_spec) {
  PodRequests out;
  PodRequests running;  // of the sidecars that have started, and then also of the containers
  for (const Json& container : elements(pod_spec, "initContainers")) {
    PodRequests own = requests_of(container);
    add(own, running);
    if (text_at(container, "restartPolicy") == "Always") running = own;
    raise_to(out, own);
  }
  for (const Json& container : elements(pod_spec, "containers")) add(running, requests_of(container));
  raise_to(out, running);
  for (const auto& [name, amount] : requests_of(pod_spec)) out[name] = amount;
  PodRequests overhead;
  set_amounts(overhead, member(pod_spec, "overhead"));
  add(out, overhead);
  for (const Json& claim : elements(pod_spec, "resourceClaims")) {
    const std::string from = text_at(claim, "resourceClaimTemplateName");
    out[fmt::format("resource claim {}", from.empty() ? text_at(claim, "resourceClaimName") : from)] += 1;
  }
  return out;
}

}  // namespace oarlock::control
