#include "common/http/server.h"

#include <CivetServer.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <tuple>
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
    const std::string head = fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", response.status,
        mg_get_response_code_text(connection, response.status), response.content_type, response.body.size());
    mg_write(connection, head.data(), head.size());
    mg_write(connection, response.body.data(), response.body.size());
    return true;
  }

  HttpRoutes routes_;
};

// Opens and closes one connection to the own port.
void knock(const std::string& address, int port) {
  const bool v6 = address.find(':') != std::string::npos;
  const int fd = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sockaddr_in6 six{};
  sockaddr_in four{};
  six.sin6_family = AF_INET6;
  four.sin_family = AF_INET;
  six.sin6_port = four.sin_port = htons(static_cast<uint16_t>(port));
  // Connecting to the unspecified address reaches the loopback on Linux.
  if (v6) {
    ::inet_pton(AF_INET6, address.c_str(), &six.sin6_addr);
    std::ignore = ::connect(fd, reinterpret_cast<const sockaddr*>(&six), sizeof six);
  } else {
    ::inet_pton(AF_INET, address.c_str(), &four.sin_addr);
    std::ignore = ::connect(fd, reinterpret_cast<const sockaddr*>(&four), sizeof four);
  }
  ::close(fd);
}

}  // namespace

struct HttpServer::Impl {
  Dispatcher dispatcher;
  CivetServer server;
  Impl(HttpRoutes routes, const std::vector<std::string>& options) : dispatcher(std::move(routes)), server(options) {
    server.addHandler("/", dispatcher);
  }
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl, std::string address, int port)
    : impl_(std::move(impl)), address_(std::move(address)), port_(port) {}

// civetweb looks at its stop flag only when its two-second poll() ends, so somebody has to knock until it has stopped.
HttpServer::~HttpServer() {
  std::atomic<bool> stopped = false;
  std::thread knocker([&] {
    for (; !stopped; std::this_thread::sleep_for(std::chrono::milliseconds(2))) knock(address_, port_);
  });
  impl_.reset();
  stopped = true;
  knocker.join();
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int port, HttpRoutes routes) {
  const std::string host = address.find(':') != std::string::npos ? "[" + address + "]" : address;
  const std::vector<std::string> options = {
      "listening_ports", fmt::format("{}:{}", host, port), "num_threads", "2", "request_timeout_ms", "10000"};
  try {
    auto impl = std::make_unique<Impl>(std::move(routes), options);
    const std::vector<int> ports = impl->server.getListeningPorts();
    const int actual = ports.empty() ? port : ports.front();
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl), address, actual));
  } catch (const std::exception&) {  // CivetException says only "null context"
    return fail(
        ExitCode::kUnavailable,
        fmt::format("cannot listen on {}:{} for metrics: the port is in use or not allowed; choose another port", host,
                    port));
  }
}

}  // namespace oarlock
