// Transport over HTTP/1.1 with Boost.Beast and Asio. The calling thread does all the work of its call.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/error.h"
#include "operator/kube/http/connection.h"
#include "operator/kube/http/connection_pool.h"
#include "operator/kube/tls_context.h"
#include "operator/kube/transport.h"
#include "operator/kube/transport_options.h"

namespace oarlock::kube {

class BeastTransport final : public Transport {
 public:
  BeastTransport(TransportOptions options, ServerAddress server, std::optional<ProxyAddress> proxy);

  TransportResult<Response> send(const Request& request, Milliseconds deadline, std::stop_token cancel) override;
  TransportResult<Response> stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                   std::stop_token cancel) override;

 private:
  // The body of a 2xx response goes to the sink if there is one.
  TransportResult<Response> call(const Request& request, ByteSink* sink, StreamLimits limits,
                                 const std::stop_token& cancel);
  TransportResult<Response> exchange(const Request& request, ByteSink* sink, CallLimits& limits);
  // Waits for the credentials, within the limits of the call.
  TransportResult<std::string> text_of(const Request& request, const CallLimits& limits);
  TransportResult<std::unique_ptr<Connection>> open(CallLimits& limits);
  void keep(std::unique_ptr<Connection> connection);
  // Fetches the client certificate. When it has changed, the connections that presented another one are closed.
  Result<void> update_certificate();

  const TransportOptions options_;
  const Route route_;
  const std::string target_prefix_;
  Resolver resolver_;
  TlsContexts server_contexts_;
  TlsContexts proxy_contexts_;
  ConnectionPool pool_;
  std::mutex mutex_;
  ClientCertificate certificate_;  // of options_.certificate, as presented by new connections
};

}  // namespace oarlock::kube
