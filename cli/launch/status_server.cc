#include "cli/launch/status_server.h"

#include <fmt/format.h>

#include <sstream>
#include <string_view>
#include <utility>

#include "common/files.h"

namespace oarlock::launch {
namespace {

constexpr char kListens[] = "0A";  // TCP_LISTEN

// The second line of /proc/net/tcp: "   0: 0100007F:24B8 00000000:0000 0A ...".
bool has_listener(const std::string& table, int port) {
  const std::string suffix = fmt::format(":{:04X}", port);
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);  // the names of the columns
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string number;
    std::string local;
    std::string remote;
    std::string state;
    words >> number >> local >> remote >> state;
    if (state == kListens && local.ends_with(suffix)) return true;
  }
  return false;
}

}  // namespace

bool is_port_in_use(int port) {
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    if (has_listener(read_file(table).value_or(""), port)) return true;
  }
  return false;
}

void StatusServer::ranks_start(SteadyTime now) {
  checkpoint_requests_.repeat();
  if (!has_reports_) server_.reset();
  if (!server_) check_at_ = is_of_ranks_ ? std::nullopt : std::optional(now + kPatience);
  open_at_ = now + kFirstPatience;
}

void StatusServer::time_passed(SteadyTime now) {
  if (server_ || is_of_ranks_) return;
  if (!has_reports_ && board_.has_reports()) {
    has_reports_ = true;
    check_at_ = now;
  }
  if (!check_at_ || *check_at_ > now) return;
  is_of_ranks_ = is_port_in_use(port_);
  check_at_ = is_of_ranks_ ? std::nullopt : std::optional(now + kPatience);  // a program may listen late
  if (!is_of_ranks_ && (has_reports_ || board_.has_restarts() || now >= open_at_)) start();
}

void StatusServer::start() {
  const HttpHandler status = [this](const std::string& text) {
    const StatusQuery query = parse_status_query(text);
    if (!query.uid.empty() && query.uid != uid_)
      return HttpResponse{404, "text/plain; charset=utf-8", "this server belongs to another job\n"};
    if (checkpoint_requests_.add(query)) on_checkpoint_request_(*query.checkpoint);
    return HttpResponse{200, "application/json", board_.status()};
  };
  const HttpHandler metrics = [&board = board_](const std::string&) {
    return HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8", board.metrics()};
  };
  HttpRoutes routes;
  routes.emplace(kStatusPath, HttpRoute(status, HandlerKind::kImmediate));
  routes.emplace(kMetricsPath, HttpRoute(metrics, HandlerKind::kImmediate));
  if (auto server = HttpServer::start("::", port_, routes)) {
    server_ = *std::move(server);
    check_at_.reset();
  }
}

}  // namespace oarlock::launch
