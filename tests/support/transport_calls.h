// Helpers of the tests of Transport.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "http/client/transport.h"

namespace oarlock::test {

inline std::unique_ptr<http::Transport> transport_with(http::TransportOptions options) {
  options.user_agent = "oarlock-test/1";
  auto transport = http::create_transport(std::move(options));
  if (!transport) throw std::runtime_error(transport.error().message);
  return std::move(*transport);
}

inline std::unique_ptr<http::Transport> transport_to(const std::string& server,
                                                     std::shared_ptr<http::TokenSource> token = nullptr) {
  http::TransportOptions options;
  options.server = server;
  options.token = std::move(token);
  return transport_with(std::move(options));
}

inline http::Request get(const std::string& target = "/x") {
  return {.method = "GET", .target = target, .body = "", .content_type = ""};
}

// Value of a header in a request's head as HostileServer received it, without the space around it; empty if missing.
inline std::string header(const std::string& head, const std::string& name) {
  const size_t at = head.find("\r\n" + name + ":");
  if (at == std::string::npos) return "";
  const size_t begin = head.find_first_not_of(' ', at + name.size() + 3);
  return head.substr(begin, head.find('\r', begin) - begin);
}

class TextSink final : public http::ByteSink {
 public:
  bool write(std::string_view bytes) override {
    text += bytes;
    return true;
  }
  std::string text;
};

template <typename Condition>
bool becomes_true(Condition condition, std::chrono::seconds limit = std::chrono::seconds(120)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline std::string chunk(const std::string& text) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + text + "\r\n";
}
inline constexpr char kChunkedHead[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

}  // namespace oarlock::test
