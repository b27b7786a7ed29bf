// Transport over HTTP/1.1. The calling thread does all the work of its call, so a request costs no switch to another
// thread, and a call's limits hold in every phase of it.
#pragma once

#include <memory>
#include <mutex>

#include "common/error.h"
#include "operator/kube/connection_pool.h"
#include "operator/kube/http_message.h"
#include "operator/kube/server_address.h"
#include "operator/kube/tls_context.h"
#include "operator/kube/transport.h"
#include "operator/kube/transport_options.h"

namespace oarlock::kube {

class HttpTransport final : public Transport {
 public:
  // Checks the address and the PEM material; kConfig with one line otherwise.
  static Result<std::unique_ptr<HttpTransport>> create(TransportOptions options);

  TransportResult<Response> send(const Request& request, Milliseconds deadline, std::stop_token cancel) override;
  TransportResult<Response> stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                   std::stop_token cancel) override;

 private:
  HttpTransport(TransportOptions options, ServerAddress server);

  // Body bytes of a 2xx response go to the sink, where there is one.
  TransportResult<Response> call(const Request& request, ByteSink* sink, StreamLimits limits,
                                 const std::stop_token& cancel);
  TransportResult<Answer> exchange(const Request& request, ByteSink* sink, Waiter& waiter);
  // Waits for the credentials, within the limits of the call.
  TransportResult<std::string> text_of(const Request& request, const Waiter& waiter);
  TransportResult<std::unique_ptr<Connection>> open(Waiter& waiter);
  void keep(std::unique_ptr<Connection> connection);
  // The client certificate to show. Connections that show another one are not used again.
  Result<ClientCertificate> certificate();

  const TransportOptions options_;
  const ServerAddress server_;
  TlsContexts contexts_;
  ConnectionPool pool_;
  std::mutex mutex_;
  ClientCertificate shown_;  // of options_.certificate
};

}  // namespace oarlock::kube
