#include "operator/kube/http/beast_transport.h"

#include <fmt/format.h>

#include <utility>

#include "operator/kube/http/message.h"

namespace oarlock::kube {
namespace {

using Kind = TransportError::Kind;

// A proxy is given the whole URL of a plain server.
std::string target_prefix(const ServerAddress& server, bool has_proxy) {
  return has_proxy && !server.tls ? "http://" + server.header + server.prefix : server.prefix;
}

}  // namespace

BeastTransport::BeastTransport(TransportOptions options, ServerAddress server, std::optional<ProxyAddress> proxy)
    : options_(std::move(options)),
      route_{.server = std::move(server),
             .proxy = std::move(proxy),
             .certificate_name = options_.tls_server_name.empty() ? route_.server.host : options_.tls_server_name,
             .user_agent = options_.user_agent},
      target_prefix_(target_prefix(route_.server, route_.proxy.has_value())),
      resolver_(route_.proxy ? route_.proxy->host : route_.server.host,
                route_.proxy ? route_.proxy->port : route_.server.port),
      server_contexts_(options_),
      proxy_contexts_(options_, TlsContexts::For::kProxy) {}

TransportResult<Response> BeastTransport::send(const Request& request, Milliseconds deadline, std::stop_token cancel) {
  return call(request, nullptr, {.idle = deadline, .total = deadline}, cancel);
}

TransportResult<Response> BeastTransport::stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                                 std::stop_token cancel) {
  return call(request, &sink, limits, cancel);
}

TransportResult<Response> BeastTransport::call(const Request& request, ByteSink* sink, StreamLimits stream_limits,
                                               const std::stop_token& cancel) {
  CallLimits limits(stream_limits, cancel);
  TransportResult<Response> response = exchange(request, sink, limits);
  if (!response) {
    const std::string through = route_.proxy ? fmt::format(" through the proxy {}", route_.proxy->url) : "";
    return failed(response.error().kind, fmt::format("{}{}: {}", options_.server, through, response.error().message));
  }
  if (response->status == 401 && options_.token != nullptr) options_.token->drop();
  return response;
}

TransportResult<Response> BeastTransport::exchange(const Request& request, ByteSink* sink, CallLimits& limits) {
  const TransportResult<std::string> text = text_of(request, limits);
  if (!text) return tl::make_unexpected(text.error());
  std::unique_ptr<Connection> connection = pool_.take();
  for (;;) {
    const bool is_used = connection != nullptr;
    if (!is_used) {
      auto opened = open(limits);
      if (!opened) return tl::make_unexpected(opened.error());
      connection = std::move(*opened);
    }
    auto received = connection->exchange(*text, sink, limits);
    if (received) {
      if (received->is_reusable) keep(std::move(connection));
      return std::move(received->response);
    }
    const ReadError& error = received.error();
    if (error.error.affects_other_connections()) pool_.clear();
    // The server may close a kept connection while the request is on its way. Only a GET can be repeated without harm.
    const bool can_repeat = is_used && error.error.kind == Kind::kBroken && error.is_unanswered;
    if (!can_repeat || request.method != "GET") return tl::make_unexpected(error.error);
    connection.reset();
  }
}

TransportResult<std::string> BeastTransport::text_of(const Request& request, const CallLimits& limits) {
  const auto left = std::chrono::duration_cast<Milliseconds>(limits.end() - std::chrono::steady_clock::now());
  Result<void> is_prepared;
  if (options_.token != nullptr) {
    is_prepared = options_.token->prepare(left);
  } else if (options_.certificate != nullptr) {
    is_prepared = options_.certificate->prepare(left);
  }
  if (!is_prepared) return failed(Kind::kRefused, is_prepared.error().message);
  RequestFields fields{.target_prefix = target_prefix_,
                       .host = route_.server.header,
                       .user_agent = options_.user_agent,
                       .token = "",
                       .proxy_authorization = ""};
  if (options_.token != nullptr) {
    Result<std::string> token = options_.token->token();
    if (!token) return failed(Kind::kRefused, token.error().message);
    fields.token = std::move(*token);
  }
  if (route_.proxy && !route_.server.tls) fields.proxy_authorization = route_.proxy->authorization;
  if (const auto updated = update_certificate(); !updated) return failed(Kind::kRefused, updated.error().message);
  return request_text(request, fields);
}

Result<void> BeastTransport::update_certificate() {
  if (options_.certificate == nullptr) return {};
  return options_.certificate->certificate().map([&](ClientCertificate now) {
    const std::lock_guard lock(mutex_);
    if (now == certificate_) return;
    certificate_ = std::move(now);
    pool_.clear();
  });
}

TransportResult<std::unique_ptr<Connection>> BeastTransport::open(CallLimits& limits) {
  TlsUse tls;
  if (route_.server.tls) {
    ClientCertificate certificate;
    {
      const std::lock_guard lock(mutex_);
      certificate = certificate_;
    }
    auto context = server_contexts_.current(certificate);
    if (!context) return failed(Kind::kTls, context.error().message);
    tls.server = std::move(*context);
  }
  if (route_.proxy && route_.proxy->tls) {
    auto context = proxy_contexts_.current({});
    if (!context) return failed(Kind::kTls, context.error().message);
    tls.proxy = std::move(*context);
  }
  return Connection::open(route_, resolver_, tls, limits);
}

void BeastTransport::keep(std::unique_ptr<Connection> connection) {
  if (connection->server_context() == server_contexts_.latest()) pool_.give_back(std::move(connection));
}

}  // namespace oarlock::kube
