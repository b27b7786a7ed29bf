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
  using Refuse = decltype(HttpServerOptions::refuse);
  Dispatcher(HttpRoutes routes, Refuse refuse) : routes_(std::move(routes)), refuse_(std::move(refuse)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const mg_request_info* request = mg_get_request_info(connection);
    const auto route = routes_.find(request->local_uri);
    if (route == routes_.end()) return send(connection, {404, "text/plain; charset=utf-8", "not found\n"});
    try {
      if (refuse_) {
        const char* authorization = mg_get_header(connection, "Authorization");
        if (const auto no = refuse_(route->first, authorization != nullptr ? authorization : ""))
          return send(connection, *no);
      }
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

  const HttpRoutes routes_;
  const Refuse refuse_;
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
  Impl(HttpRoutes routes, Dispatcher::Refuse refuse, const std::vector<std::string>& options)
      : dispatcher(std::move(routes), std::move(refuse)), server(options) {
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

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int port, HttpRoutes routes,
                                                      HttpServerOptions options) {
  const bool v6 = address.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + address + "]:" : address + ":";
  // civetweb's "+" is both protocols on one port. A kernel without IPv6 has no such socket.
  std::vector<std::pair<std::string, std::string>> tries{{address, address == "::" ? "+" : host}};
  if (address == "::") tries.emplace_back("0.0.0.0", "0.0.0.0:");
  for (const auto& [bound, prefix] : tries) {
    std::vector<std::string> settings = {
        "listening_ports",    fmt::format("{}{}{}", prefix, port, options.certificate.empty() ? "" : "s"),
        "num_threads",        "2",
        "request_timeout_ms", "10000"};
    if (!options.certificate.empty()) settings.insert(settings.end(), {"ssl_certificate", options.certificate});
    try {
      auto impl = std::make_unique<Impl>(routes, options.refuse, settings);
      const std::vector<int> ports = impl->server.getListeningPorts();
      const int actual = ports.empty() ? port : ports.front();
      return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl), bound, actual));
    } catch (const std::exception&) {  // CivetException says only "null context"
    }
  }
  if (!options.certificate.empty() && ::access(options.certificate.c_str(), R_OK) != 0)
    return fail(ExitCode::kNoInput, fmt::format("{}: the server's certificate cannot be read", options.certificate));
  return fail(
      ExitCode::kUnavailable,
      fmt::format("cannot listen on {}{} for metrics: the port is in use or not allowed; choose another port{}", host,
                  port,
                  options.certificate.empty() ? "" : " (or the certificate file is no PEM certificate with its key)"));
}

}  // namespace oarlock
