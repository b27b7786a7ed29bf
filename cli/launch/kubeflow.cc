#include "cli/launch/kubeflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "common/files.h"
#include "common/json_access.h"
#include "common/number.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace oarlock::launch {
namespace {

constexpr size_t kMaxBody = size_t{64} << 10;
constexpr int kMaxDepth = 8;
constexpr size_t kTokenBytes = 32;
constexpr char kPath[] = "/status";
constexpr char kLoopback[] = "127.0.0.1";
constexpr int64_t kPercent = 100;
constexpr double kMaxCount = 1e15;

std::optional<int64_t> to_count(std::optional<double> number) {
  if (!number || !(*number >= 0 && *number <= kMaxCount)) return std::nullopt;
  return static_cast<int64_t>(*number);
}

// Removes the first of these metrics and returns it.
std::optional<double> take(std::map<std::string, double>& metrics, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto node = metrics.extract(name)) return node.mapped();
  }
  return std::nullopt;
}

}  // namespace

std::optional<ProgressReport> KubeflowReports::convert(std::string_view body) {
  const nlohmann::json json = parse_untrusted_json(body, kMaxBody, kMaxDepth);
  const nlohmann::json& status = member(json, "trainerStatus");
  if (!status.is_object()) return std::nullopt;
  ProgressReport out;
  for (const nlohmann::json& metric : elements(status, "metrics")) {
    const std::optional<double> value = parse_double(text_at(metric, "value"));
    if (value && std::isfinite(*value)) out.metrics.emplace(text_at(metric, "name"), *value);
  }
  out.step = to_count(take(out.metrics, {"current_step", "global_step", "step"}));
  out.target_steps = to_count(take(out.metrics, {"total_steps", "max_steps"}));
  out.loss = take(out.metrics, {"loss", "train_loss"});
  counts_steps_ = counts_steps_ || out.step || out.target_steps;
  const auto number_at = [&status](const char* key) -> std::optional<double> {
    const nlohmann::json& value = member(status, key);
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  };
  const std::optional<int64_t> percent = to_count(number_at("progressPercentage"));
  if (percent && !counts_steps_) {
    out.target_steps = kPercent;
    if (*percent > 0) out.step = std::min(*percent, kPercent);  // a run that resumes begins with 0 percent, too
  }
  if (const auto left = number_at("estimatedRemainingSeconds")) out.metrics["estimated_remaining_seconds"] = *left;
  return out;
}

Result<KubeflowEndpoint> KubeflowEndpoint::start(const std::filesystem::path& directory, OnReport on_report) {
  const std::string token = random_hex(kTokenBytes);
  const std::filesystem::path file = directory / "kubeflow_token";
  RETURN_IF_ERROR(create_new_file(file, 0600));
  RETURN_IF_ERROR(write_in_place(file, token));
  // The server calls the handler on one thread.
  const HttpHandler handler = [reports = std::make_shared<KubeflowReports>(),
                               on_report = std::move(on_report)](const std::string& body) {
    const std::optional<ProgressReport> report = reports->convert(body);
    if (!report) return HttpResponse{400, "text/plain; charset=utf-8", "the body has no trainerStatus\n"};
    on_report(*report);
    return HttpResponse{200, "application/json", "{}\n"};
  };
  HttpRoutes routes;
  routes.emplace(kPath, HttpRoute(handler, HandlerKind::kPost));
  HttpServerOptions options{.post_token = token};
  options.limits.post_bytes = kMaxBody;
  ASSIGN_OR_RETURN(auto server, HttpServer::start(kLoopback, 0, routes, options));
  return KubeflowEndpoint(file, std::move(server));
}

Environment KubeflowEndpoint::environment(const Environment& inherited) const {
  if (inherited.contains(kEnvKubeflowUrl)) return {};
  Environment out = {{kEnvKubeflowUrl, fmt::format("http://{}:{}{}", kLoopback, server_->port(), kPath)},
                     {kEnvKubeflowToken, token_file_.string()}};
  const auto is_set = [&](const char* name) { return !value_of(inherited, name).empty(); };
  if (!std::ranges::any_of(std::initializer_list<const char*>{"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"},
                           is_set))
    return out;
  const std::string given = is_set("no_proxy") ? value_of(inherited, "no_proxy") : value_of(inherited, "NO_PROXY");
  for (const char* name : {"no_proxy", "NO_PROXY"}) {
    const std::string excepted = is_set(name) ? value_of(inherited, name) : given;
    if (excepted != "*") out[name] = excepted.empty() ? kLoopback : excepted + "," + kLoopback;
  }
  return out;
}

}  // namespace oarlock::launch
