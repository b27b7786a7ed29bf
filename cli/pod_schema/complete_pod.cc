#include "cli/pod_schema/complete_pod.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>

#include "api/resources.h"
#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

using Json = nlohmann::json;

constexpr const char* kContainerLists[] = {"initContainers", "containers"};

class CompletePod {
 public:
  explicit CompletePod(const Json& pod) : spec_(member(pod, "spec")) {}

  std::vector<FieldProblem> check() {
    check_names();
    for (const char* list : kContainerLists) {
      const Json& containers = elements(spec_, list);
      for (size_t i = 0; i < containers.size(); ++i) {
        const std::string path = fmt::format("spec.{}[{}]", list, i);
        check_resources(member(containers[i], "resources"), path + ".resources");
        check_ports(containers[i], path, std::string_view(list) == "containers");
      }
    }
    return std::move(problems_);
  }

 private:
  void add(std::string path, std::string message) { problems_.push_back({std::move(path), std::move(message)}); }

  void check_names() {
    std::map<std::string, const char*> seen;
    for (const char* list : kContainerLists) {
      const Json& containers = elements(spec_, list);
      for (size_t i = 0; i < containers.size(); ++i) {
        const std::string name = text_at(containers[i], "name");
        const auto [first, is_new] = seen.try_emplace(name, list);
        // The other check reports two items of one list.
        if (name.empty() || is_new || first->second == list) continue;
        add(fmt::format("spec.{}[{}].name", list, i),
            fmt::format("'{}' is the name of an init container as well; use each name once", shortened(name)));
      }
    }
  }

  // Resources that cannot be shared between containers have the same request and limit.
  void check_resources(const Json& resources, const std::string& path) {
    const Json& limits = member(resources, "limits");
    const Json& requests = member(resources, "requests");
    for (const auto& [name, request] : entries(requests)) {
      const Json& limit = member(limits, name);
      const std::string at = fmt::format("{}.requests.{}", path, name);
      if (is_exclusive(name) && limit.is_null()) {
        add(at, fmt::format("{} cannot be overcommitted: put it into limits, which is the request as well",
                            shortened(name)));
      } else if (is_exclusive(name) && api::quantity_value(request) != api::quantity_value(limit)) {
        add(at, fmt::format("{} must equal the limit, {}, because {} cannot be overcommitted; leave the request out",
                            shortened(dump_json(request)), shortened(dump_json(limit)), shortened(name)));
      }
    }
    bool has_huge_pages = false;
    bool has_others = false;
    for (const Json* map : {&limits, &requests}) {
      for (const auto& [name, quantity] : entries(*map)) {
        has_huge_pages = has_huge_pages || name.starts_with("hugepages-");
        has_others = has_others || name == "cpu" || name == "memory";
      }
    }
    if (has_huge_pages && !has_others)
      add(path, "a container with hugepages needs a request or limit of cpu or memory as well");
  }

  // Ports of the node are shared by the containers of a pod; with hostNetwork each port is one of the node.
  void check_ports(const Json& container, const std::string& path, bool runs_together) {
    const bool is_host = true_at(spec_, "hostNetwork");
    std::set<std::string> names;
    const Json& ports = elements(container, "ports");
    for (size_t i = 0; i < ports.size(); ++i) {
      const std::string at = fmt::format("{}.ports[{}]", path, i);
      const std::string name = text_at(ports[i], "name");
      if (!name.empty() && !names.insert(name).second)
        add(at + ".name", fmt::format("'{}' occurs twice; use each once", shortened(name)));
      const auto number = integer_at<int64_t>(ports[i], "containerPort", 0);
      auto host = integer_at<int64_t>(ports[i], "hostPort", 0);
      if (is_host && runs_together && host != 0 && host != number)
        add(at + ".hostPort",
            fmt::format("{} must equal containerPort, {}, with hostNetwork; leave hostPort out", host, number));
      if (is_host && host == 0) host = number;  // the default of the API server
      if (host == 0 || !runs_together) continue;
      const std::string protocol = text_at(ports[i], "protocol");
      const auto key = std::tuple(protocol.empty() ? "TCP" : protocol, text_at(ports[i], "hostIP"), host);
      if (!host_ports_.insert(key).second)
        add(at + (is_host ? ".containerPort" : ".hostPort"),
            fmt::format("port {} of the node occurs twice; use each once", host));
    }
  }

  static bool is_exclusive(const std::string& resource) {
    return api::is_extended_resource(resource) || resource.starts_with("hugepages-");
  }

  static std::vector<std::pair<std::string, Json>> entries(const Json& object) {
    std::vector<std::pair<std::string, Json>> out;
    if (!object.is_object()) return out;
    for (const auto& [key, value] : object.items()) {
      if (!value.is_null()) out.emplace_back(key, value);
    }
    return out;
  }

  const Json& spec_;
  std::set<std::tuple<std::string, std::string, int64_t>> host_ports_;
  std::vector<FieldProblem> problems_;
};

}  // namespace

std::vector<FieldProblem> check_complete_pod(const Json& pod) { return CompletePod(pod).check(); }

}  // namespace oarlock::cli
