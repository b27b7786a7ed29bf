#include "operator/shell/server.h"

namespace oarlock::control {
namespace {

HttpHandler check(std::function<std::string()> why_not) {
  return [why_not = std::move(why_not)](const std::string&) -> HttpResponse {
    const std::string reason = why_not();
    if (reason.empty()) return {.status = 200, .body = "ok\n"};
    return {.status = 503, .body = reason + "\n"};
  };
}

}  // namespace

HttpRoutes operator_routes(ServerSources sources) {
  return {{"/healthz", {check(std::move(sources.why_not_healthy)), HandlerKind::kImmediate}},
          {"/readyz", {check(std::move(sources.why_not_ready)), HandlerKind::kImmediate}},
          {"/metrics", metrics_handler(std::move(sources.metrics))}};
}

}  // namespace oarlock::control
