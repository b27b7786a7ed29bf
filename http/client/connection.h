// Connections to the server, through the proxy if there is one, and the pool of idle connections.
#pragma once

#include <openssl/ssl.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "http/client/address.h"
#include "http/client/channel.h"
#include "http/client/message.h"

namespace oarlock::http {

// Destination of a connection, and how to reach it.
struct Route {
  ServerAddress server;
  std::optional<ProxyAddress> proxy;
  std::string certificate_name;  // the name that the server's certificate must have
  std::string user_agent;        // sent to the proxy
};

// OpenSSL contexts of the TLS sessions with the server and with the proxy; null if that session does not exist.
struct TlsSessions {
  std::shared_ptr<SSL_CTX> server;
  std::shared_ptr<SSL_CTX> proxy;
};

// One connection, which several threads may use one after another. Not thread-safe.
class Connection {
 public:
  // Connects, and performs the TLS handshakes and the CONNECT request that the route needs. `resolver` resolves the
  // proxy's host name if there is a proxy, otherwise the server's. Fails with kConnect, kTls, or the error of the
  // limits.
  static TransportResult<std::unique_ptr<Connection>> open(const Route& route, Resolver& resolver,
                                                           const TlsSessions& tls, CallLimits& limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends a request (made by format_request()) and reads the response. Reads even if the write fails, because a server
  // may respond before it has received the whole request, and then close the connection.
  tl::expected<ReceivedResponse, ReadError> exchange(const std::string& request, ByteSink* sink, CallLimits& limits);

  // Whether another request may be sent: the server has neither closed the connection nor sent anything since the last
  // response. Never waits, and reads at most TcpChannel::kMaxBytesBetweenCalls.
  bool is_reusable();

  const std::shared_ptr<SSL_CTX>& server_context() const { return server_context_; }

 private:
  explicit Connection(std::shared_ptr<SSL_CTX> server_context);
  TransportResult<void> start_tls(SSL_CTX* context, const std::string& name, const std::string& peer,
                                  const CallLimits& limits);

  const std::shared_ptr<SSL_CTX> server_context_;
  std::unique_ptr<Channel> channel_;  // the top layer
  TcpChannel* const tcp_;             // the bottom layer
  bool is_open_ = false;              // no error has occurred
};

// Idle connections. The most recently used connection is reused first, so that the surplus connections of a burst age.
// Those that have been idle for more than `max_idle_time` are closed by the next call of take(), put() or
// close_expired(). Connections are checked and closed outside of the mutex. Thread-safe.
class ConnectionPool {
 public:
  explicit ConnectionPool(Milliseconds max_idle_time) : max_idle_time_(max_idle_time) {}

  // Returns a connection that the server has left open; null if there is none.
  std::unique_ptr<Connection> take();
  void put(std::unique_ptr<Connection> connection);
  void clear();
  // Returns the number of closed connections.
  size_t close_expired();

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Idle {
    std::unique_ptr<Connection> connection;
    Time since;
  };
  using Connections = std::deque<Idle>;
  // Removes and returns the connections that have been idle for too long. REQUIRES: mutex_ is held.
  Connections remove_expired(Time now);

  const Milliseconds max_idle_time_;
  std::mutex mutex_;
  Connections idle_;  // the least recently used first
};

}  // namespace oarlock::http
