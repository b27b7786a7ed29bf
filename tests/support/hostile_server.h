// A loopback HTTP server, plain or TLS, whose behavior a handler of the test determines completely, for tests of
// clients with servers that fail, stall or send invalid data.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/certificates.h"

namespace oarlock::test {

struct SslFree {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

class HostileServer {
 public:
  enum class Loopback { kIpv4, kIpv6 };
  struct Received {
    int connection = 0;  // counted from 0
    std::string method;
    std::string target;
    std::string head;  // request line and headers as sent
    std::string body;
    std::string client;  // the common name of the client's certificate; empty: no certificate
  };

  // One accepted connection, for use by the handler. It is closed in order, unless reset() or truncate() was called.
  class Connection {
   public:
    Connection(int fd, SSL_CTX* tls, const std::atomic<bool>& stopping);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    bool handshake();  // performs the TLS handshake; false: it failed
    std::string client() const;
    // Returns false if the peer has closed the connection.
    bool write(const std::string& text);
    void answer(int status, const std::string& body, const std::string& headers = "");
    void reset();  // ends with RST instead of FIN
    // Ends without close_notify of TLS, as a cut connection does.
    void truncate() { sends_close_notify_ = false; }
    // Sends about this many bytes of TLS 1.3 KeyUpdate messages, which the client must answer. They are prepared first,
    // so that they arrive faster than the client handles them. Returns false if the peer has closed the connection.
    bool flood_with_key_updates(size_t bytes);
    void wait_for_close();  // until the peer closes or the server ends
    bool closed() const;    // the peer has closed; only without TLS, and if the peer sends nothing more
    // Reads the head of a request, and its body unless `head_only`.
    bool read_request(Received& out, bool head_only = false);
    // Connects to this port of the same loopback address and copies bytes in both directions until one side closes, as
    // a proxy does after CONNECT.
    void relay(Loopback loopback, int port);
    bool stopping() const { return stopping_; }

    std::atomic<size_t> written = 0;  // of application data and floods

   private:
    template <typename Put>
    bool write_with(const std::string& text, Put put);
    // As send(2) and recv(2) without blocking: return the number of bytes, 0 at the end, or -1 with EAGAIN.
    ssize_t put(const char* data, size_t size);
    ssize_t get(char* data, size_t size);
    ssize_t result_of(int result);
    void wait(short events);
    bool read_more(std::string& text);

    const int fd_;
    const std::unique_ptr<SSL, SslFree> ssl_;  // null: plain
    const std::atomic<bool>& stopping_;
    bool sends_close_notify_ = true;
  };

  // Called for each request; returns whether to continue with the next request of this connection; false closes it.
  using Handler = std::function<bool(Connection&, const Received&)>;

  struct Options {
    Loopback loopback = Loopback::kIpv4;
    std::optional<Identity> identity = std::nullopt;  // with one, TLS
    std::string client_authority = "";                // PEM: the server requests client certificates of this authority
    bool head_only = false;  // the handler is called once the head was received; the body is not read
  };

  explicit HostileServer(Handler handler) : HostileServer(std::move(handler), Options()) {}
  HostileServer(Handler handler, const Options& options);
  ~HostileServer();
  HostileServer(const HostileServer&) = delete;
  HostileServer& operator=(const HostileServer&) = delete;

  // Sets the certificate of later connections.
  void present(const Identity& identity);

  int port() const { return port_; }
  std::string url() const;
  std::vector<Received> received() const;
  int connections() const { return connections_; }
  int open() const { return open_; }

 private:
  std::shared_ptr<SSL_CTX> context_for(const Identity& identity) const;
  void accept_loop();
  void serve(int fd, int number);

  const Handler handler_;
  const Options options_;
  int fd_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> connections_ = 0;
  std::atomic<int> open_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<SSL_CTX> tls_;
  std::vector<Received> received_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace oarlock::test
