// A small HTTP server for health, metrics and status: GET only, exact paths, two threads. Built on cpp-httplib.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/error.h"

namespace oarlock {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Called on the server's threads, so it must be thread-safe. The query string is without "?".
using HttpHandler = std::function<HttpResponse(const std::string& query)>;
using HttpRoutes = std::map<std::string, HttpHandler>;  // path -> handler; unknown paths answer 404, other methods 405

struct HttpServerOptions {
  // PEM file with the certificate (and its chain) and its key: TLS. Read for each connection, so that it may be
  // renewed. Empty: plain HTTP.
  std::string certificate;
  // Asked before each handler, with the Authorization header or "": an answer is sent instead of the handler's.
  std::function<std::optional<HttpResponse>(const std::string& path, const std::string& authorization)> refuse;
};

class HttpServer {
 public:
  // Listens on address:port ("0.0.0.0", "127.0.0.1", "::1"; "::" is all addresses, IPv4 and IPv6, as far as the machine
  // has them); port 0 picks a free one. Fails with kUnavailable and a message that names the port when it is taken.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, int port, const HttpRoutes& routes,
                                                   const HttpServerOptions& options = {});

  ~HttpServer();  // stops listening and waits for handlers in flight
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  struct Impl;
  HttpServer(std::unique_ptr<Impl> impl, int port);
  std::unique_ptr<Impl> impl_;
  int port_;
};

}  // namespace oarlock
