#include "operator/kube/cpprestsdk/transport.h"

#include <cpprest/http_client.h>
#include <fmt/format.h>
#include <pplx/threadpool.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <string_view>
#include <utility>

#include "operator/kube/cpprestsdk/failure.h"
#include "operator/kube/proxy.h"

namespace oarlock::kube {

using Kind = TransportError::Kind;
using SteadyClock = std::chrono::steady_clock;

struct CpprestTransport::Limits {
  SteadyClock::time_point end;
  Milliseconds idle;
  std::stop_token cancel;
};

namespace {

constexpr size_t kMaxErrorBody = 1u << 20;
constexpr std::chrono::hours kLibraryTimeout{24 * 365};  // never reached: the calling thread enforces the limits
constexpr size_t kReadSize = 16u << 10;
constexpr Milliseconds kExitWait{2000};
constexpr Milliseconds kProxyTimeoutMargin{1000};

// With one thread, closing the connection of a cancelled call cannot race with its I/O, and a finished request has
// returned its connection to the pool before its caller continues. The library's default is 40 threads.
void limit_library_threads() {
  static const bool is_done = (crossplat::threadpool::initialize_with_threads(1), true);
  static_cast<void>(is_done);
}

// Ends the request, on the library's thread, by closing its connection.
void cancel_request(const pplx::cancellation_token_source& source) {
  boost::asio::post(crossplat::threadpool::shared_instance().service(), [source] { source.cancel(); });
}

Result<void> check_proxy(const std::string& url, const ServerAddress& server) {
  if (url.empty()) return {};
  const Result<ProxyAddress> proxy = parse_proxy_url(url);
  if (!proxy) return tl::make_unexpected(proxy.error());
  if (proxy->tls)
    return fail(ExitCode::kConfig,
                fmt::format("the proxy {} cannot be used: cpprestsdk has no TLS to proxies", proxy->url));
  if (server.host.find(':') != std::string::npos)
    return fail(ExitCode::kConfig,
                fmt::format("the proxy {} cannot be used: cpprestsdk has no proxies for IPv6 addresses", proxy->url));
  return {};
}

web::web_proxy make_proxy(const ProxyAddress& address) {
  web::uri_builder url;
  web::web_proxy proxy(url.set_scheme("http").set_host(address.host).set_port(address.port).to_uri());
  if (address.authorization.empty()) return proxy;
  const auto bytes = utility::conversions::from_base64(address.authorization.substr(std::string("Basic ").size()));
  const std::string user(bytes.begin(), bytes.end());
  const size_t colon = user.find(':');
  proxy.set_credentials({user.substr(0, colon), user.substr(colon + 1)});
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
      exchange->set_head(head_of(response.get()));
      response.get().content_ready().then(report_end);
    } catch (...) {
      exchange->finish(std::current_exception());
    }
  });
}

// Collects the body of a response, or passes it to the sink. False: the sink or the limit rejects it.
bool consume(std::string_view piece, ByteSink* sink, Response& response) {
  if (sink != nullptr && response.ok()) return sink->write(piece);
  const size_t limit = sink == nullptr ? Transport::kMaxResponseBytes : kMaxErrorBody;
  if (response.body.size() + piece.size() > limit) return false;
  response.body.append(piece);
  return true;
}

}  // namespace

Result<std::unique_ptr<CpprestTransport>> CpprestTransport::create(TransportOptions options) {
  Result<ServerAddress> server = parse_server_address(options.server);
  if (!server) return tl::make_unexpected(server.error());
  if (const auto valid = check_tls_material(options); !valid) return tl::make_unexpected(valid.error());
  if (const auto valid = check_proxy(options.proxy, *server); !valid) return tl::make_unexpected(valid.error());
  limit_library_threads();
  return std::unique_ptr<CpprestTransport>(new CpprestTransport(std::move(options), std::move(*server)));
}

CpprestTransport::CpprestTransport(TransportOptions options, ServerAddress server)
    : options_(std::move(options)),
      server_(std::move(server)),
      tls_(std::make_shared<TlsSettings>(options_,
                                         options_.tls_server_name.empty() ? server_.host : options_.tls_server_name)) {}

CpprestTransport::~CpprestTransport() { open_->wait_until_none(kExitWait); }

TransportResult<Response> CpprestTransport::send(const Request& request, Milliseconds deadline,
                                                 std::stop_token cancel) {
  return call(request, nullptr, {.idle = deadline, .total = deadline}, cancel);
}

TransportResult<Response> CpprestTransport::stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                                   std::stop_token cancel) {
  return call(request, &sink, limits, cancel);
}

TransportResult<Response> CpprestTransport::call(const Request& request, ByteSink* sink, StreamLimits limits,
                                                 const std::stop_token& cancel) {
  const Limits call_limits{.end = SteadyClock::now() + limits.total, .idle = limits.idle, .cancel = cancel};
  auto response = prepare_headers(call_limits).and_then([&](const RequestHeaders& headers) {
    return exchange(request, headers, sink, call_limits);
  });
  if (!response) return failed(response.error().kind, fmt::format("{}: {}", options_.server, response.error().message));
  if (response->status == 401 && options_.token != nullptr) options_.token->drop();
  return response;
}

TransportResult<RequestHeaders> CpprestTransport::prepare_headers(const Limits& limits) {
  const auto left = std::chrono::duration_cast<Milliseconds>(limits.end - SteadyClock::now());
  Result<void> prepared;
  if (options_.token != nullptr) {
    prepared = options_.token->prepare(left);
  } else if (options_.certificate != nullptr) {
    prepared = options_.certificate->prepare(left);
  }
  if (!prepared) return failed(Kind::kRefused, prepared.error().message);
  RequestHeaders headers{.host = server_.header, .user_agent = options_.user_agent, .token = ""};
  if (options_.token != nullptr) {
    Result<std::string> token = options_.token->token();
    if (!token) return failed(Kind::kRefused, token.error().message);
    headers.token = std::move(*token);
  }
  if (options_.certificate != nullptr) {
    const auto certificate = options_.certificate->certificate();
    if (!certificate) return failed(Kind::kRefused, certificate.error().message);
    tls_->show(*certificate);
  }
  return headers;
}

TransportResult<Response> CpprestTransport::exchange(const Request& request, const RequestHeaders& headers,
                                                     ByteSink* sink, const Limits& limits) {
  for (;;) {
    auto response = attempt(request, headers, sink, limits);
    if (!response) return tl::make_unexpected(response.error());
    if (*response) return std::move(**response);
  }
}

TransportResult<std::optional<Response>> CpprestTransport::attempt(const Request& request,
                                                                   const RequestHeaders& headers, ByteSink* sink,
                                                                   const Limits& limits) {
  const auto exchange = std::make_shared<Exchange>();
  auto message = make_request(request, headers, exchange);
  if (!message) return tl::make_unexpected(message.error());
  const std::shared_ptr<HttpClient> client = current_client(limits.idle);
  const pplx::cancellation_token_source source;
  exchange->start(open_);
  try {
    follow(client->request(*message, source.get_token()), exchange);
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
    if (event == Exchange::Event::kCancelled) return failed(Kind::kCancelled, "the request was cancelled");
    if (event == Exchange::Event::kTimeout) {
      if (idle_end < limits.end) return failed(Kind::kIdle, "the server has sent nothing for too long");
      return failed(Kind::kDeadline, "no whole response before the deadline");
    }
    if (exchange.error() != nullptr) {
      if (is_stale(exchange.error())) return std::nullopt;
      TransportError failure = classify_failure(exchange.error(), proxy_url());
      const std::string rejection = tls_->take_rejection();
      if (failure.kind == Kind::kTls && !rejection.empty()) failure.message = rejection;
      return tl::make_unexpected(std::move(failure));
    }
    response.status = exchange.head().status;
    response.retry_after = exchange.head().retry_after;
    if (response.status < 200) return failed(Kind::kBroken, "invalid HTTP response: an interim response");
    if (event == Exchange::Event::kEnd) return response;
    if (!consume(exchange.piece(), sink, response))
      return failed(Kind::kRefused, "the response is larger than allowed, or the receiver has ended it");
    exchange.take();
  }
}

std::string CpprestTransport::proxy_url() const {
  return options_.proxy.empty() ? "" : parse_proxy_url(options_.proxy)->url;  // create() has checked it
}

std::shared_ptr<CpprestTransport::HttpClient> CpprestTransport::current_client(Milliseconds idle) {
  // check_connection() cannot inspect a tunnel, and a cancelled request does not close the connection to a proxy that
  // has not opened the tunnel yet: the library's timeout does.
  if (!options_.proxy.empty()) return make_client(idle + kProxyTimeoutMargin);
  const std::lock_guard lock(mutex_);
  const int version = tls_->version();
  if (client_ == nullptr || client_version_ != version) {
    client_ = make_client(kLibraryTimeout);
    client_version_ = version;
  }
  return client_;
}

std::shared_ptr<CpprestTransport::HttpClient> CpprestTransport::make_client(Milliseconds timeout) const {
  web::http::client::http_client_config config;
  config.set_timeout(timeout);
  config.set_chunksize(kReadSize);
  config.set_max_redirects(0);
  config.set_tlsext_sni_enabled(false);  // TlsSettings sends the name
  config.set_validate_certificates(options_.verify);
  config.set_ssl_context_callback(
      [tls = tls_](boost::asio::ssl::context& context) { tls->apply(context.native_handle()); });
  if (options_.proxy.empty()) {
    config.set_nativehandle_options([tls = server_.tls](void* handle) { check_connection(handle, tls); });
  } else {
    config.set_proxy(make_proxy(*parse_proxy_url(options_.proxy)));
  }
  // The host of an IPv6 literal is given without brackets, because the library passes it to the resolver as it is.
  web::uri_builder base;
  base.set_scheme(server_.tls ? "https" : "http")
      .set_host(server_.host)
      .set_port(server_.port)
      .set_path(server_.prefix);
  return std::make_shared<HttpClient>(base.to_uri(), config);
}

void CpprestTransport::discard(const std::shared_ptr<HttpClient>& client) {
  const std::lock_guard lock(mutex_);
  if (client_ == client) client_.reset();
}

}  // namespace oarlock::kube
