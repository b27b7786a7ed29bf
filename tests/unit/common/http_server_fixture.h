// Servers on loopback, and what they serve.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "http/server.h"
#include "tests/support/raw_client.h"

namespace oarlock {

inline constexpr char kHead[] = " HTTP/1.1\r\nHost: localhost\r\n\r\n";

inline HttpHandler constant(const std::string& body) {
  return [body](const std::string&) { return HttpResponse{.body = body}; };
}

inline std::unique_ptr<HttpServer> serve(const HttpRoutes& routes, const HttpServerOptions& options = {}) {
  auto server = HttpServer::start("127.0.0.1", 0, routes, options);
  if (!server) throw std::runtime_error(server.error().message);
  return std::move(*server);
}

// One request; the response with its head.
inline std::string request(int port, const std::string& method_and_target) {
  const test::RawClient client(port);
  client.send(method_and_target + kHead);
  return client.receive();
}

// A handler that blocks until release(); it counts its calls.
class BlockingHandler {
 public:
  ~BlockingHandler() { release(); }
  HttpHandler handler() {
    return [this](const std::string&) {
      ++calls_;
      released_.wait();
      return HttpResponse{.body = "late"};
    };
  }
  void wait_for_calls(int count) const {
    while (calls_ < count) std::this_thread::yield();
  }
  void release() {
    if (!std::exchange(is_released_, true)) promise_.set_value();
  }

 private:
  bool is_released_ = false;
  std::atomic<int> calls_ = 0;
  std::promise<void> promise_;
  std::shared_future<void> released_ = promise_.get_future();
};

}  // namespace oarlock
