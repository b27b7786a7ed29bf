// Transport over HTTP/1.1 with Boost.Beast and Asio. The calling thread does all the work of its call.
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/status_macros.h"
#include "http/client/connection.h"
#include "http/client/http_transport.h"
#include "http/client/message.h"
#include "http/client/tls_context.h"

namespace oarlock::http {
namespace {

// A proxy receives the whole URL if the server uses plain HTTP.
std::string target_prefix(const TransportTarget& target) {
  const ServerAddress& server = target.server;
  return target.proxy && !server.tls ? "http://" + server.header + server.prefix : server.prefix;
}

class BeastTransport final : public HttpTransport {
 public:
  explicit BeastTransport(TransportTarget target)
      : HttpTransport(std::move(target)),
        route_{.server = target_.server,
               .proxy = target_.proxy,
               .certificate_name = target_.certificate_name(),
               .user_agent = target_.options.user_agent},
        target_prefix_(target_prefix(target_)),
        resolver_(route_.proxy ? route_.proxy->host : route_.server.host,
                  route_.proxy ? route_.proxy->port : route_.server.port),
        server_contexts_(target_.options, TlsContexts::Peer::kServer),
        proxy_contexts_(target_.options, TlsContexts::Peer::kProxy),
        pool_(target_.options.max_idle_time) {}

  size_t close_idle_connections() override { return pool_.close_expired(); }

 private:
  TransportResult<Response> call(const Request& request, ByteSink* sink, StreamLimits limits,
                                 const std::stop_token& cancel) override;
  TransportResult<std::string> prepare_request(const Request& request, const CallLimits& limits);
  void set_certificate(ClientCertificate certificate);
  TransportResult<std::unique_ptr<Connection>> open_connection(CallLimits& limits);

  const Route route_;
  const std::string target_prefix_;
  Resolver resolver_;
  TlsContexts server_contexts_;
  TlsContexts proxy_contexts_;
  ConnectionPool pool_;
  std::mutex mutex_;
  ClientCertificate certificate_;  // presented by new connections; guarded by mutex_
};

TransportResult<Response> BeastTransport::call(const Request& request, ByteSink* sink, StreamLimits stream_limits,
                                               const std::stop_token& cancel) {
  CallLimits limits(stream_limits, cancel);
  ASSIGN_OR_RETURN(const std::string text, prepare_request(request, limits));
  std::unique_ptr<Connection> connection = pool_.take();
  for (;;) {
    const bool is_reused = connection != nullptr;
    if (!is_reused) {
      ASSIGN_OR_RETURN(connection, open_connection(limits));
    }
    auto received = connection->exchange(text, sink, limits);
    if (received) {
      // A connection with older TLS material is closed.
      const bool is_current = connection->server_context() == server_contexts_.latest();
      if (received->is_reusable && is_current) pool_.put(std::move(connection));
      return std::move(received->response);
    }
    const ReadError& error = received.error();
    if (error.error.affects_other_connections()) pool_.clear();
    // The server may close an idle connection while the request is in transit. Only a GET can be repeated safely.
    const bool was_closed_while_idle =
        is_reused && error.error.kind == TransportErrorKind::kBroken && error.is_unanswered;
    if (!was_closed_while_idle || request.method != "GET") return tl::make_unexpected(error.error);
    connection.reset();
  }
}

TransportResult<std::string> BeastTransport::prepare_request(const Request& request, const CallLimits& limits) {
  ASSIGN_OR_RETURN(Credentials credentials, obtain_credentials(limits.end(), limits.cancel()));
  if (target_.options.certificate != nullptr) set_certificate(std::move(credentials.certificate));
  RequestFields fields{.target_prefix = target_prefix_,
                       .host = route_.server.header,
                       .user_agent = route_.user_agent,
                       .token = std::move(credentials.token),
                       .token_scheme = target_.options.token_scheme,
                       .proxy_authorization = "",
                       .further = ""};
  for (const auto& [name, value] : target_.options.headers) fields.further += name + ": " + value + "\r\n";
  if (route_.proxy && !route_.server.tls) fields.proxy_authorization = route_.proxy->authorization();
  return format_request(request, fields);
}

// Closes the idle connections if the certificate has changed, because they presented the old one.
void BeastTransport::set_certificate(ClientCertificate certificate) {
  const std::lock_guard lock(mutex_);
  if (certificate == certificate_) return;
  certificate_ = std::move(certificate);
  pool_.clear();
}

TransportResult<std::unique_ptr<Connection>> BeastTransport::open_connection(CallLimits& limits) {
  const auto to_tls_error = [](const Error& error) { return TransportError{TransportErrorKind::kTls, error.message}; };
  TlsSessions tls;
  if (route_.server.tls) {
    ClientCertificate certificate;
    {
      const std::lock_guard lock(mutex_);
      certificate = certificate_;
    }
    ASSIGN_OR_RETURN(tls.server, server_contexts_.current(certificate).map_error(to_tls_error));
  }
  if (route_.proxy && route_.proxy->tls) {
    ASSIGN_OR_RETURN(tls.proxy, proxy_contexts_.current({}).map_error(to_tls_error));
  }
  return Connection::open(route_, resolver_, tls, limits);
}

}  // namespace

Result<std::unique_ptr<Transport>> create_transport(TransportOptions options) {
  return check_options(std::move(options)).map([](TransportTarget target) -> std::unique_ptr<Transport> {
    return std::make_unique<BeastTransport>(std::move(target));
  });
}

}  // namespace oarlock::http
