// A TCP client that sends exactly the bytes that a test passes to it, for tests of servers.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace oarlock::test {

class RawClient {
 public:
  struct Options {
    std::string from = "127.0.0.1";  // any address of 127.0.0.0/8
    int receive_buffer = 0;          // bytes; 0: the kernel's choice
  };

  // Connects to 127.0.0.1. Throws std::system_error.
  explicit RawClient(int port) : RawClient(port, Options{}) {}
  RawClient(int port, const Options& options) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::inet_addr(options.from.c_str());
    const int yes = 1;
    // The port is chosen by connect(2), so that many clients can share one address.
    check(::setsockopt(fd_, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes));
    if (options.receive_buffer > 0)
      check(::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &options.receive_buffer, sizeof options.receive_buffer));
    check(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address));
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    address.sin_port = ::htons(static_cast<uint16_t>(port));
    check(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address));
  }
  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawClient& operator=(RawClient&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int fd() const { return fd_; }

  // Returns false if the server has closed the connection. Blocks while the server does not read.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // The same without blocking; bytes that the kernel does not accept are dropped.
  bool try_send(std::string_view bytes) const {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EAGAIN;
  }

  // Returns all bytes until the server closes the connection or the timeout expires.
  std::string receive(std::chrono::milliseconds timeout = std::chrono::seconds(20)) const {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    std::string out;
    for (char buffer[4096]; wait(deadline);) {
      const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      out.append(buffer, static_cast<size_t>(got));
    }
    return out;
  }

  // Whether the server closes the connection within this time; discards what it sends.
  bool is_closed_within(std::chrono::milliseconds timeout = std::chrono::seconds(20)) const {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (char buffer[4096]; wait(deadline);) {
      if (::recv(fd_, buffer, sizeof buffer, 0) <= 0) return true;
    }
    return false;
  }
  bool is_closed() const { return is_closed_within(std::chrono::milliseconds(0)); }
  // Whether the server has closed or reset the connection, without reading.
  bool is_reset() const {
    pollfd entry{.fd = fd_, .events = POLLRDHUP, .revents = 0};
    return ::poll(&entry, 1, 0) > 0;
  }

 private:
  static void check(int result) {
    if (result != 0) throw std::system_error(errno, std::generic_category(), "RawClient");
  }

  // Returns false after the deadline.
  bool wait(std::chrono::steady_clock::time_point deadline) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) > 0;
  }

  int fd_;
};

// The response to GET, with its head; "" if there is none.
inline std::string raw_get(int port, const std::string& target, const RawClient::Options& options = {}) {
  const RawClient client(port, options);
  client.send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  return client.receive();
}

}  // namespace oarlock::test
