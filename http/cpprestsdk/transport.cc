// Transport over cpprestsdk's HTTP client, selected with -DOARLOCK_KUBE_TRANSPORT=cpprestsdk. docs/dependencies.md
// compares it with the default. One thread of the library performs all I/O; the calling thread waits, writes to its
// sink and enforces the limits of its call.
//
// The library causes these differences from the interface: an interim (1xx) response ends the request as broken; the
// head of a response and the line before a chunk have no limit of size, only of time; trailers and invalid header lines
// are ignored; bytes that arrive together with a response, beyond its end, are dropped; the idle limit counts whole
// chunks, and blocks of 16 KiB if a body has no chunks; a request through a proxy always opens a connection; proxies
// with https:// and proxies for an IPv6 address are rejected. Therefore it must not be used with untrusted API servers.
#include <cpprest/http_client.h>
#include <fmt/format.h>
#include <pplx/threadpool.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "common/status_macros.h"
#include "http/client/http_transport.h"
#include "http/cpprestsdk/exchange.h"
#include "http/cpprestsdk/tls_settings.h"

namespace oarlock::http {
namespace {

using SteadyClock = std::chrono::steady_clock;
using HttpClient = web::http::client::http_client;

constexpr std::chrono::hours kLibraryTimeout{24 * 365};  // never reached: the calling thread enforces the limits
constexpr size_t kReadSize = 16u << 10;
constexpr Milliseconds kExitWait{2000};
constexpr Milliseconds kProxyTimeoutMargin{1000};

// Limits the library to one thread; its default is 40. With one thread, closing the connection of a cancelled call
// cannot race with its I/O, and a finished request has returned its connection to the pool before its caller continues.
void limit_library_threads() {
  static const bool is_done = (crossplat::threadpool::initialize_with_threads(1), true);
  static_cast<void>(is_done);
}

// Ends the request, on the library's thread, by closing its connection.
void cancel_request(const pplx::cancellation_token_source& source) {
  boost::asio::post(crossplat::threadpool::shared_instance().service(), [source] { source.cancel(); });
}

Result<void> check_proxy(const TransportTarget& target) {
  if (!target.proxy) return {};
  const auto unsupported = [&](std::string_view what) {
    return fail(ExitCode::kConfig,
                fmt::format("the proxy {} cannot be used: cpprestsdk does not support {}", target.proxy->url, what));
  };
  if (target.proxy->tls) return unsupported("TLS to proxies");
  if (target.server.host.find(':') != std::string::npos) return unsupported("proxies for IPv6 addresses");
  return {};
}

web::web_proxy make_proxy(const ProxyAddress& address) {
  web::uri_builder url;
  web::web_proxy proxy(url.set_scheme("http").set_host(address.host).set_port(address.port).to_uri());
  if (address.has_credentials) proxy.set_credentials({address.user_name, address.password});
  return proxy;
}

// Reports the head and then the end of the response to `exchange`, on the library's thread.
void follow(const pplx::task<web::http::http_response>& request, const std::shared_ptr<Exchange>& exchange) {
  const auto report_end = [exchange](const pplx::task<web::http::http_response>& response) {
    try {
      response.get();
      exchange->finish(nullptr);
    } catch (...) {
      exchange->finish(std::current_exception());
    }
  };
  request.then([exchange, report_end](const pplx::task<web::http::http_response>& response) {
    try {
      exchange->set_head(parse_head(response.get()));
      response.get().content_ready().then(report_end);
    } catch (...) {
      exchange->finish(std::current_exception());
    }
  });
}

// Appends a piece of the body to the response, or writes it to the sink. Returns false if the response becomes too
// large or the sink returns false.
bool consume(std::string_view piece, ByteSink* sink, Response& response) {
  if (sink != nullptr && response.ok()) return sink->write(piece);
  const size_t limit = sink == nullptr ? Transport::kMaxResponseBytes : kMaxErrorBodyBytes;
  if (response.body.size() + piece.size() > limit) return false;
  response.body.append(piece);
  return true;
}

class CpprestTransport final : public HttpTransport {
 public:
  // REQUIRES: check_proxy(target) succeeds.
  explicit CpprestTransport(TransportTarget target)
      : HttpTransport(std::move(target)),
        tls_(std::make_shared<TlsSettings>(target_.options, target_.certificate_name())) {
    limit_library_threads();
  }
  // Waits, for at most two seconds, until the library has finished cancelled requests.
  ~CpprestTransport() override { open_->wait_until_none(kExitWait); }

 private:
  struct Limits {
    SteadyClock::time_point end;
    Milliseconds idle;
    std::stop_token cancel;
  };

  TransportResult<Response> call(const Request& request, ByteSink* sink, StreamLimits limits,
                                 const std::stop_token& cancel) override;
  // Success without a value means that the pooled connection was stale and the request was not sent.
  TransportResult<std::optional<Response>> attempt(const Request& request, const RequestHeaders& headers,
                                                   ByteSink* sink, const Limits& limits);
  TransportResult<std::optional<Response>> receive(Exchange& exchange, ByteSink* sink, const Limits& limits);

  // A client owns a pool of connections. It is replaced when the TLS material has changed, or when a connection has
  // broken, because the other connections of the pool may be affected too.
  std::shared_ptr<HttpClient> current_client(Milliseconds idle);
  std::shared_ptr<HttpClient> make_client(Milliseconds timeout) const;
  void discard(const std::shared_ptr<HttpClient>& client);

  const std::shared_ptr<OpenRequests> open_ = std::make_shared<OpenRequests>();
  const std::shared_ptr<TlsSettings> tls_;  // shared with the clients
  std::mutex mutex_;
  std::shared_ptr<HttpClient> client_;
  int client_version_ = 0;  // tls_->version() when client_ was made
};

TransportResult<Response> CpprestTransport::call(const Request& request, ByteSink* sink, StreamLimits stream_limits,
                                                 const std::stop_token& cancel) {
  const Limits limits{.end = SteadyClock::now() + stream_limits.total, .idle = stream_limits.idle, .cancel = cancel};
  ASSIGN_OR_RETURN(Credentials credentials, obtain_credentials(limits.end, cancel));
  if (target_.options.certificate != nullptr) tls_->set_certificate(credentials.certificate);
  const RequestHeaders headers{.host = target_.server.header,
                               .user_agent = target_.options.user_agent,
                               .token = std::move(credentials.token),
                               .token_scheme = target_.options.token_scheme,
                               .further = target_.options.headers};
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<Response> response, attempt(request, headers, sink, limits));
    if (response) return std::move(*response);
  }
}

TransportResult<std::optional<Response>> CpprestTransport::attempt(const Request& request,
                                                                   const RequestHeaders& headers, ByteSink* sink,
                                                                   const Limits& limits) {
  const auto exchange = std::make_shared<Exchange>();
  ASSIGN_OR_RETURN(const web::http::http_request message, make_request(request, headers, exchange));
  const std::shared_ptr<HttpClient> client = current_client(limits.idle);
  const pplx::cancellation_token_source source;
  exchange->start(open_);
  try {
    follow(client->request(message, source.get_token()), exchange);
  } catch (...) {
    exchange->finish(std::current_exception());
  }
  auto response = receive(*exchange, sink, limits);
  if (response) return response;
  exchange->abandon();
  cancel_request(source);
  if (response.error().affects_other_connections()) discard(client);
  return response;
}

TransportResult<std::optional<Response>> CpprestTransport::receive(Exchange& exchange, ByteSink* sink,
                                                                   const Limits& limits) {
  Response response;
  for (;;) {
    const auto idle_end = SteadyClock::now() + limits.idle;
    const Exchange::Event event = exchange.wait(std::min(idle_end, limits.end), limits.cancel);
    if (event == Exchange::Event::kCancelled) return failed(TransportErrorKind::kCancelled, "cancelled");
    if (event == Exchange::Event::kTimeout) {
      if (idle_end < limits.end)
        return failed(TransportErrorKind::kIdle, fmt::format("no data received for {} ms", limits.idle.count()));
      return failed(TransportErrorKind::kDeadline, "no complete response before the deadline");
    }
    if (exchange.error() != nullptr) {
      if (is_stale(exchange.error())) return std::nullopt;
      TransportError failure = to_transport_error(exchange.error(), target_.proxy.has_value());
      const std::string rejection = tls_->take_rejection();
      if (failure.kind == TransportErrorKind::kTls && !rejection.empty()) failure.message = rejection;
      return tl::make_unexpected(std::move(failure));
    }
    response.status = exchange.head().status;
    response.retry_after = exchange.head().retry_after;
    if (response.status < 200) return failed(TransportErrorKind::kBroken, "invalid HTTP response: an interim response");
    if (event == Exchange::Event::kEnd) return response;
    if (!consume(exchange.piece(), sink, response))
      return failed(TransportErrorKind::kRefused, "the response is larger than allowed, or the receiver ended it");
    exchange.take();
  }
}

std::shared_ptr<HttpClient> CpprestTransport::current_client(Milliseconds idle) {
  // check_connection() cannot inspect a tunnel, so connections through a proxy are not reused. A cancelled request does
  // not close the connection to a proxy that has not opened the tunnel yet; only the library's timeout does.
  if (target_.proxy) return make_client(idle + kProxyTimeoutMargin);
  const std::lock_guard lock(mutex_);
  const int version = tls_->version();
  if (client_ == nullptr || client_version_ != version) {
    client_ = make_client(kLibraryTimeout);
    client_version_ = version;
  }
  return client_;
}

std::shared_ptr<HttpClient> CpprestTransport::make_client(Milliseconds timeout) const {
  web::http::client::http_client_config config;
  config.set_timeout(timeout);
  config.set_chunksize(kReadSize);
  config.set_max_redirects(0);
  config.set_tlsext_sni_enabled(false);  // TlsSettings sends the server name
  config.set_validate_certificates(target_.options.verify);
  config.set_ssl_context_callback(
      [tls = tls_](boost::asio::ssl::context& context) { tls->apply(context.native_handle()); });
  if (!target_.proxy) {
    config.set_nativehandle_options([tls = target_.server.tls](void* handle) { check_connection(handle, tls); });
  } else {
    config.set_proxy(make_proxy(*target_.proxy));
  }
  // The host of an IPv6 literal is given without brackets, because the library passes it to the resolver as it is.
  web::uri_builder base;
  const ServerAddress& server = target_.server;
  base.set_scheme(server.tls ? "https" : "http").set_host(server.host).set_port(server.port).set_path(server.prefix);
  return std::make_shared<HttpClient>(base.to_uri(), config);
}

void CpprestTransport::discard(const std::shared_ptr<HttpClient>& client) {
  const std::lock_guard lock(mutex_);
  if (client_ == client) client_.reset();
}

}  // namespace

Result<std::unique_ptr<Transport>> create_transport(TransportOptions options) {
  ASSIGN_OR_RETURN(TransportTarget target, check_options(std::move(options)));
  RETURN_IF_ERROR(check_proxy(target));
  return std::make_unique<CpprestTransport>(std::move(target));
}

}  // namespace oarlock::http
