// Transport over cpprestsdk's HTTP client, selected with -DOARLOCK_KUBE_TRANSPORT=cpprestsdk. docs/dependencies.md
// compares it with the default. One thread of the library performs all I/O; the calling thread waits, writes to its
// sink and enforces the limits of its call.
//
// The library causes these differences from the interface: an interim (1xx) response ends the request as broken; a
// response head and the line before a chunk have no limit of size, only of time; trailers and invalid header lines are
// ignored; bytes that arrive together with a response, beyond its end, are dropped; the idle limit counts whole chunks,
// and blocks of 16 KiB where a body has no chunks; a request through a proxy always opens a connection; proxies with
// https:// and proxies for an IPv6 address are rejected. Therefore it is not meant for API servers that are not
// trusted.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "common/error.h"
#include "operator/kube/cpprestsdk/exchange.h"
#include "operator/kube/cpprestsdk/message.h"
#include "operator/kube/cpprestsdk/tls_settings.h"
#include "operator/kube/server_address.h"
#include "operator/kube/transport.h"
#include "operator/kube/transport_options.h"

namespace web::http::client {
class http_client;
}

namespace oarlock::kube {

class CpprestTransport final : public Transport {
 public:
  // Checks the address, the proxy and the PEM material; fails with kConfig or kNoInput.
  static Result<std::unique_ptr<CpprestTransport>> create(TransportOptions options);
  // Waits, for at most two seconds, until cancelled requests have left the library.
  ~CpprestTransport() override;

  TransportResult<Response> send(const Request& request, Milliseconds deadline, std::stop_token cancel) override;
  TransportResult<Response> stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                   std::stop_token cancel) override;

 private:
  using HttpClient = web::http::client::http_client;
  struct Limits;  // of one call

  CpprestTransport(TransportOptions options, ServerAddress server);

  // The body of a 2xx response goes to `sink` unless that is null.
  TransportResult<Response> call(const Request& request, ByteSink* sink, StreamLimits limits,
                                 const std::stop_token& cancel);
  TransportResult<RequestHeaders> prepare_headers(const Limits& limits);
  TransportResult<Response> exchange(const Request& request, const RequestHeaders& headers, ByteSink* sink,
                                     const Limits& limits);
  // Success without a value: the pooled connection was stale and the request has not been sent.
  TransportResult<std::optional<Response>> attempt(const Request& request, const RequestHeaders& headers,
                                                   ByteSink* sink, const Limits& limits);
  TransportResult<std::optional<Response>> receive(Exchange& exchange, ByteSink* sink, const Limits& limits);

  std::string proxy_url() const;  // without credentials; empty: none

  // A client has a pool of connections. A new one takes its place when the TLS material has changed or when a
  // connection has broken, because the others of that pool may be affected too.
  std::shared_ptr<HttpClient> current_client(Milliseconds idle);
  std::shared_ptr<HttpClient> make_client(Milliseconds timeout) const;
  void discard(const std::shared_ptr<HttpClient>& client);

  const TransportOptions options_;
  const ServerAddress server_;
  const std::shared_ptr<OpenRequests> open_ = std::make_shared<OpenRequests>();
  const std::shared_ptr<TlsSettings> tls_;  // shared with the clients
  std::mutex mutex_;
  std::shared_ptr<HttpClient> client_;
  int client_version_ = 0;  // tls_->version() when client_ was made
};

}  // namespace oarlock::kube
