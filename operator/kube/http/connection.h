// One connection to the server, through the proxy if there is one, and the exchange of requests and responses on it.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>

#include "operator/kube/http/message.h"
#include "operator/kube/http/resolver.h"
#include "operator/kube/http/tcp_channel.h"
#include "operator/kube/proxy.h"
#include "operator/kube/server_address.h"

namespace oarlock::kube {

// Where a connection leads to. The resolver is for the proxy if there is one, otherwise for the server.
struct Route {
  ServerAddress server;
  std::optional<ProxyAddress> proxy;
  std::string certificate_name;  // the name that the server's certificate must have
  std::string user_agent;        // for the proxy
};

// The OpenSSL contexts of a connection; null if it does not use TLS on that section.
struct TlsUse {
  std::shared_ptr<SSL_CTX> server;
  std::shared_ptr<SSL_CTX> proxy;
};

// Not thread-safe, but may be used by one thread after another.
class Connection {
 public:
  // kConnect, kTls, or the error of the limits.
  static TransportResult<std::unique_ptr<Connection>> open(const Route& route, Resolver& resolver, const TlsUse& tls,
                                                           CallLimits& limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends a request (request_text()) and reads the response to it. Also reads after a failed write, because a server
  // may respond before it has received the whole request, and then close the connection.
  tl::expected<ReceivedResponse, ReadError> exchange(const std::string& request, ByteSink* sink, CallLimits& limits);

  // Whether the connection can take another request: the server has neither closed it nor sent anything since the last
  // response. Does not wait.
  bool is_reusable();
  const std::shared_ptr<SSL_CTX>& server_context() const { return server_context_; }

 private:
  explicit Connection(std::shared_ptr<SSL_CTX> server_context);
  TransportResult<void> start_tls(SSL_CTX* context, const std::string& name, const std::string& peer,
                                  const CallLimits& limits);

  const std::shared_ptr<SSL_CTX> server_context_;
  std::unique_ptr<Channel> channel_;  // the uppermost
  TcpChannel* const tcp_;             // the lowest
  bool is_open_ = false;              // no error so far
};

}  // namespace oarlock::kube
