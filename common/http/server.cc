#include "common/http/server.h"

#include <CivetServer.h>
#include <fmt/format.h>

#include <stdexcept>
#include <vector>

namespace oarlock {
namespace {

// One handler for "/" that looks the exact path up: civetweb alone would also match prefixes.
class Dispatcher final : public CivetHandler {
 public:
  explicit Dispatcher(HttpRoutes routes) : routes_(std::move(routes)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const mg_request_info* request = mg_get_request_info(connection);
    const auto route = routes_.find(request->local_uri);
    if (route == routes_.end()) return send(connection, {404, "text/plain; charset=utf-8", "not found\n"});
    try {
      return send(connection, route->second(request->query_string != nullptr ? request->query_string : ""));
    } catch (const std::exception& error) {  // the boundary of a request
      return send(connection, {500, "text/plain; charset=utf-8", std::string(error.what()) + "\n"});
    }
  }
  bool handlePost(CivetServer*, mg_connection* connection) override { return not_allowed(connection); }
  bool handlePut(CivetServer*, mg_connection* connection) override { return not_allowed(connection); }
  bool handleDelete(CivetServer*, mg_connection* connection) override { return not_allowed(connection); }

 private:
  static bool not_allowed(mg_connection* connection) {
    return send(connection, {405, "text/plain; charset=utf-8", "only GET is served here\n"});
  }
  static bool send(mg_connection* connection, const HttpResponse& response) {
    const std::string head =
        fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", response.status,
                    mg_get_response_code_text(connection, response.status), response.content_type, response.body.size());
    mg_write(connection, head.data(), head.size());
    mg_write(connection, response.body.data(), response.body.size());
    return true;
  }

  HttpRoutes routes_;
};

}  // namespace

struct HttpServer::Impl {
  Dispatcher dispatcher;
  CivetServer server;
  Impl(HttpRoutes routes, const std::vector<std::string>& options) : dispatcher(std::move(routes)), server(options) {
    server.addHandler("/", dispatcher);
  }
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl, int port) : impl_(std::move(impl)), port_(port) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int port, HttpRoutes routes) {
  const std::string host = address.find(':') != std::string::npos ? "[" + address + "]" : address;
  const std::vector<std::string> options = {"listening_ports", fmt::format("{}:{}", host, port), "num_threads", "2",
                                            "request_timeout_ms", "10000"};
  try {
    auto impl = std::make_unique<Impl>(std::move(routes), options);
    const std::vector<int> ports = impl->server.getListeningPorts();
    const int actual = ports.empty() ? port : ports.front();
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl), actual));
  } catch (const std::exception&) {  // CivetException says only "null context"
    return fail(ExitCode::kUnavailable,
                fmt::format("cannot listen on {}:{} for metrics: the port is in use or not allowed; choose another port", host, port));
  }
}

}  // namespace oarlock
