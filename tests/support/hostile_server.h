// A loopback HTTP server that does exactly, and only, what the test says: for servers that break, stall or lie.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace oarlock::test {

class HostileServer {
 public:
  struct Received {
    int connection = 0;  // counted from 0
    std::string method;
    std::string target;
    std::string head;  // request line and headers as sent
    std::string body;
  };

  // One accepted connection, as the handler sees it.
  class Connection {
   public:
    Connection(int fd, const std::atomic<bool>& stopping) : fd_(fd), stopping_(stopping) {}
    ~Connection() { ::close(fd_); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // False when the peer has gone.
    bool write(const std::string& text) {
      size_t sent = 0;
      while (sent < text.size() && !stopping_) {
        const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
          sent += static_cast<size_t>(n);
          written += static_cast<size_t>(n);
        } else if (errno == EAGAIN) {
          wait(POLLOUT);
        } else {
          return false;
        }
      }
      return sent == text.size();
    }
    void answer(int status, const std::string& body, const std::string& headers = "") {
      write("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
            headers + "\r\n" + body);
    }
    // Ends with RST instead of FIN.
    void reset() {
      const linger hard{1, 0};
      ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    // Until the peer closes or the server ends.
    void wait_for_close() {
      char byte = 0;
      while (!stopping_) {
        const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return;
        if (n > 0) ::recv(fd_, &byte, 1, MSG_DONTWAIT);
        wait(POLLIN);
      }
    }
    // The peer has gone; only where nothing more is expected of it.
    bool closed() const {
      char byte = 0;
      const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      return n == 0 || (n < 0 && errno != EAGAIN);
    }
    bool read_request(Received& out) {
      out = {};
      while (out.head.find("\r\n\r\n") == std::string::npos) {
        if (!read_more(out.head)) return false;
      }
      const size_t end = out.head.find("\r\n\r\n") + 4;
      out.body = out.head.substr(end);
      out.head.resize(end);
      out.method = out.head.substr(0, out.head.find(' '));
      const size_t target = out.method.size() + 1;
      out.target = out.head.substr(target, out.head.find(' ', target) - target);
      const size_t length_at = out.head.find("Content-Length:");
      const size_t length = length_at == std::string::npos ? 0 : std::stoul(out.head.substr(length_at + 15));
      while (out.body.size() < length) {
        if (!read_more(out.body)) return false;
      }
      return true;
    }
    bool stopping() const { return stopping_; }

    std::atomic<size_t> written = 0;

   private:
    void wait(short events) {
      pollfd poll_fd{fd_, events, 0};
      ::poll(&poll_fd, 1, 20);
    }
    bool read_more(std::string& text) {
      char buffer[65536];
      while (!stopping_) {
        const ssize_t n = ::recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
        if (n > 0) {
          text.append(buffer, static_cast<size_t>(n));
          return true;
        }
        if (n == 0 || errno != EAGAIN) return false;
        wait(POLLIN);
      }
      return false;
    }

    const int fd_;
    const std::atomic<bool>& stopping_;
  };

  // Called for each request; true: go on with the next of this connection, false: close it.
  using Handler = std::function<bool(Connection&, const Received&)>;

  enum class Loopback { kIpv4, kIpv6 };
  explicit HostileServer(Handler handler, Loopback loopback = Loopback::kIpv4)
      : handler_(std::move(handler)), v6_(loopback == Loopback::kIpv6) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    auto* address = v6_ ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
    socklen_t size = v6_ ? sizeof six : sizeof four;
    fd_ = ::socket(v6_ ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::bind(fd_, address, size) != 0 || ::listen(fd_, 64) != 0 || ::getsockname(fd_, address, &size) != 0) {
      throw std::runtime_error(std::string("hostile server: ") + std::strerror(errno));
    }
    port_ = ntohs(v6_ ? six.sin6_port : four.sin_port);
    acceptor_ = std::thread([this] { accept_loop(); });
  }
  ~HostileServer() {
    stopping_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(fd_);
  }
  HostileServer(const HostileServer&) = delete;
  HostileServer& operator=(const HostileServer&) = delete;

  int port() const { return port_; }
  std::string url() const { return (v6_ ? "http://[::1]:" : "http://127.0.0.1:") + std::to_string(port_); }
  std::vector<Received> received() const {
    const std::lock_guard lock(mutex_);
    return received_;
  }
  int connections() const { return connections_; }
  int open() const { return open_; }

 private:
  void accept_loop() {
    while (!stopping_) {
      pollfd poll_fd{fd_, POLLIN, 0};
      if (::poll(&poll_fd, 1, 20) <= 0) continue;
      const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const int number = connections_++;
      ++open_;
      threads_.emplace_back([this, fd, number] {
        serve(fd, number);
        --open_;
      });
    }
  }
  void serve(int fd, int number) {
    Connection connection(fd, stopping_);
    Received request;
    while (connection.read_request(request)) {
      request.connection = number;
      {
        const std::lock_guard lock(mutex_);
        received_.push_back(request);
      }
      if (!handler_(connection, request)) return;
    }
  }

  const Handler handler_;
  const bool v6_;
  int fd_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> connections_ = 0;
  std::atomic<int> open_ = 0;
  mutable std::mutex mutex_;
  std::vector<Received> received_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace oarlock::test
