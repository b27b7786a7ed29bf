// cpprest's U() macro breaks fmt's headers.
#define _TURN_OFF_PLATFORM_STRING
#include "operator/kube/cpprest_transport.h"

#include <cpprest/http_client.h>
#include <cpprest/producerconsumerstream.h>
#include <fmt/format.h>
#include <pplx/threadpool.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "operator/kube/body_buffer.h"
#include "operator/kube/literal_address.h"
#include "operator/kube/tls_context.h"

namespace oarlock::kube {
namespace {

using Clock = std::chrono::steady_clock;
using HttpClient = web::http::client::http_client;

constexpr size_t kPoolThreads = 2;                       // cpprest's default is 40; more than 2 are not faster
constexpr auto kLibraryTimeout = std::chrono::hours(1);  // never reached: the limits here are ours
constexpr auto kCancelGrace =
    std::chrono::seconds(1);  // a cancelled request ends in milliseconds, unless in getaddrinfo
constexpr auto kCloseGrace = std::chrono::seconds(30);  // the longest that getaddrinfo takes
constexpr size_t kMaxErrorBody = 1u << 20;
constexpr char kTooLong[] = "the response is larger than allowed, or no more of it is wanted";

Response head_of(const web::http::http_response& response) {
  Response head;
  head.status = response.status_code();
  const auto& headers = response.headers();
  if (const auto it = headers.find("Retry-After"); it != headers.end()) {
    char* end = nullptr;
    const long seconds = std::strtol(it->second.c_str(), &end, 10);
    if (end != it->second.c_str() && *end == '\0' && seconds >= 0) head.retry_after = std::chrono::seconds(seconds);
  }
  return head;
}

// Collects a whole body, up to a limit.
class BodyCollector final : public ByteSink {
 public:
  explicit BodyCollector(size_t limit) : limit_(limit) {}
  bool write(std::string_view bytes) override {
    if (body_.size() + bytes.size() > limit_) return false;
    body_ += bytes;
    return true;
  }
  std::string take() { return std::move(body_); }

 private:
  const size_t limit_;
  std::string body_;
};

// By what cpprest was doing when it failed: its error codes are misleading (an EOF is "No such file").
TransportError::Kind kind_of(const std::string& cpprest_message) {
  const auto starts = [&](std::string_view prefix) { return cpprest_message.starts_with(prefix); };
  if (starts("Error resolving address") || starts("Failed to resolve address") || starts("Failed to connect")) {
    return TransportError::Kind::kConnect;
  }
  if (starts("Error in SSL handshake")) return TransportError::Kind::kTls;
  return TransportError::Kind::kBroken;
}

std::string describe(const std::string& cpprest_message, const VerifyReport& report) {
  const auto starts = [&](std::string_view prefix) { return cpprest_message.starts_with(prefix); };
  if (starts("Error resolving address") || starts("Failed to resolve address"))
    return "the host name cannot be resolved";
  if (starts("Failed to connect")) return "no connection: nothing listens there, or it cannot be reached";
  if (starts("Error in SSL handshake")) {
    const std::string problem = report.get();
    return problem.empty() ? "TLS handshake failed: the server may refuse the client certificate, or speaks no TLS"
                           : problem;
  }
  if (starts("cannot rewind")) return "the connection had been closed by the server";
  // Its text ends with a reason that is wrong as often as not: keep what it was doing.
  return "the connection broke: " + cpprest_message.substr(0, cpprest_message.find(':'));
}

struct Limits {
  Milliseconds idle;
  Milliseconds total;
};

}  // namespace

class CpprestTransport::Impl {
 public:
  Impl(TransportOptions options, web::uri base)
      : options_(std::move(options)),
        base_(std::move(base)),
        report_(std::make_shared<VerifyReport>(ipv6_literal(base_.host()))),
        in_flight_(std::make_shared<InFlight>()),
        client_(make_client()) {}

  ~Impl() {
    // A client that is destroyed while a request runs crashes at exit: rather leak it.
    if (!in_flight_->wait_empty(kCloseGrace)) new std::shared_ptr<HttpClient>(client_);
  }

  // Runs one request. Body bytes of a 2xx response go to the sink, where there is one; any other body is returned.
  TransportResult<Response> exchange(const Request& request, ByteSink* sink, Limits limits,
                                     const std::stop_token& cancel) {
    auto message = make_message(request);
    if (!message) return tl::make_unexpected(message.error());
    const auto state = std::make_shared<Exchange>(sink == nullptr ? Transport::kMaxResponseBytes : 0);
    message->set_response_stream(streams::ostream(streams::streambuf<uint8_t>(std::make_shared<BodyBuffer>(state))));
    pplx::cancellation_token_source canceller;
    const auto current = current_client();
    if (!current) return refuse(current.error().message);
    const std::shared_ptr<HttpClient>& client = *current;
    start(*client, *message, canceller.get_token(), state);

    TransportResult<Response> result = converse(*state, sink, limits, cancel);
    if (!result) {
      end(*state, canceller);
      // After any failure: the pool may hold a connection that cpprest took out and never opened.
      replace(client);
      result.error().message = fmt::format("{}: {}", options_.server, result.error().message);
    } else if (result->status == 401 && options_.token != nullptr) {
      options_.token->drop();
    }
    return result;
  }

 private:
  static web::http::client::http_client_config config_of(const std::shared_ptr<const TransportOptions>& options,
                                                         const std::shared_ptr<VerifyReport>& report) {
    web::http::client::http_client_config config;
    config.set_timeout(std::chrono::duration_cast<std::chrono::microseconds>(kLibraryTimeout));
    config.set_max_redirects(0);  // it would carry the token to wherever the redirect points
    config.set_validate_certificates(options->verify);
    config.set_ssl_context_callback([options, report](boost::asio::ssl::context& context) {
      prepare_tls(context.native_handle(), *options, *report);
    });
    return config;
  }

  std::shared_ptr<HttpClient> make_client() const {
    auto options = std::make_shared<TransportOptions>(options_);
    if (!shown_.certificate.empty()) {
      options->client_certificate = {.text = shown_.certificate, .file = ""};
      options->client_key = {.text = shown_.key, .file = ""};
    }
    return std::make_shared<HttpClient>(base_, config_of(options, report_));
  }

  // A new one when the client certificate has changed.
  Result<std::shared_ptr<HttpClient>> current_client() {
    Result<ClientCertificate> certificate;
    if (options_.certificate != nullptr) certificate = options_.certificate->certificate();
    if (!certificate) return tl::make_unexpected(certificate.error());
    const std::lock_guard lock(mutex_);
    if (*certificate != shown_) {
      shown_ = std::move(*certificate);
      client_ = make_client();
    }
    return client_;
  }

  // Requests in flight keep the old client alive.
  void replace(const std::shared_ptr<HttpClient>& used) {
    const std::lock_guard lock(mutex_);
    if (client_ == used) client_ = make_client();
  }

  tl::unexpected<TransportError> refuse(const std::string& why) const {
    return tl::make_unexpected(
        TransportError{TransportError::Kind::kRefused, fmt::format("{}: {}", options_.server, why)});
  }

  TransportResult<web::http::http_request> make_message(const Request& request) {
    web::http::http_request message(request.method);
    try {
      message.set_request_uri(web::uri(request.target));
    } catch (const web::uri_exception& error) {
      return refuse(fmt::format("the request target '{}' is not valid: {}", request.target, error.what()));
    }
    auto& headers = message.headers();
    headers.add("User-Agent", options_.user_agent);
    headers.add("Accept", "application/json");
    if (!options_.tls_server_name.empty()) headers.add("Host", options_.tls_server_name);
    if (options_.token != nullptr) {
      const Result<std::string> token = options_.token->token();
      if (!token) return refuse(token.error().message);
      if (!token->empty()) headers.add("Authorization", "Bearer " + *token);
    }
    if (request.method != "GET") {
      // cpprest sends a request again when a pooled connection turns out closed, unless the body cannot seek.
      streams::producer_consumer_buffer<uint8_t> body;
      if (!request.body.empty())
        body.putn_nocopy(reinterpret_cast<const uint8_t*>(request.body.data()), request.body.size()).wait();
      body.close(std::ios_base::out);
      message.set_body(body.create_istream(), request.body.size(),
                       request.content_type.empty() ? "application/json" : request.content_type);
    }
    return message;
  }

  void start(HttpClient& client, const web::http::http_request& message, const pplx::cancellation_token& token,
             const std::shared_ptr<Exchange>& state) {
    const std::shared_ptr<InFlight> in_flight = in_flight_;
    in_flight->enter();
    const auto finish = [state, in_flight](const std::string& error) {
      {
        const std::lock_guard lock(state->mutex);
        state->error = error;
        state->done = true;
      }
      state->changed.notify_all();
      in_flight->leave();
    };
    pplx::task<web::http::http_response> task;
    try {
      task = client.request(message, token);
    } catch (const std::exception& error) {
      finish(std::string("Failed before sending: ") + error.what());
      return;
    }
    // Ends with a task-based continuation: an exception that nobody looks at ends the process.
    task.then([state](const web::http::http_response& response) {
          {
            const std::lock_guard lock(state->mutex);
            state->head = head_of(response);
            if (state->calls()) state->changed.notify_all();
          }
          return response.content_ready();
        })
        .then([finish](const pplx::task<web::http::http_response>& whole) {
          std::string error;
          try {
            whole.get();
          } catch (const std::exception& exception) {
            error = exception.what();
            if (error.empty()) error = "unknown error";
          }
          finish(error);
        });
  }

  // The calling thread's part: takes bytes, watches the limits, until the end.
  TransportResult<Response> converse(Exchange& state, ByteSink* sink, Limits limits, const std::stop_token& cancel) {
    using Kind = TransportError::Kind;
    const auto failed = [](Kind kind, std::string message) {
      return tl::make_unexpected(TransportError{kind, std::move(message)});
    };
    const std::stop_callback wake(cancel, [&state] {
      const std::lock_guard lock(state.mutex);
      state.changed.notify_all();
    });
    const Clock::time_point end = Clock::now() + limits.total;
    Clock::time_point silent_until = Clock::now() + limits.idle;
    BodyCollector rest(kMaxErrorBody);
    std::unique_lock lock(state.mutex);
    for (;;) {
      if (cancel.stop_requested()) return failed(Kind::kCancelled, "cancelled");
      if (state.bytes != nullptr && state.head) {
        const std::string_view bytes(reinterpret_cast<const char*>(state.bytes), state.size);
        state.bytes = nullptr;
        const auto consumed = std::exchange(state.consumed, std::nullopt);
        lock.unlock();
        ByteSink& target = state.head->ok() ? *sink : rest;
        const bool more = target.write(bytes);
        consumed->set(bytes.size());
        lock.lock();
        if (!more) return failed(Kind::kRefused, kTooLong);
        silent_until = Clock::now() + limits.idle;
      } else if (state.too_long) {
        return failed(Kind::kRefused, kTooLong);
      } else if (state.done) {
        if (!state.error.empty()) return failed(kind_of(state.error), describe(state.error, *report_));
        Response response = std::move(*state.head);
        response.body = sink == nullptr ? std::move(state.body) : rest.take();
        return response;
      }
      const Clock::time_point now = Clock::now();
      if (now >= end) {
        return failed(Kind::kDeadline, fmt::format("no whole response within {} ms", limits.total.count()));
      }
      if (now >= silent_until)
        return failed(Kind::kIdle, fmt::format("nothing was received for {} ms", limits.idle.count()));
      state.changed.wait_until(lock, std::min(end, silent_until),
                               [&] { return cancel.stop_requested() || state.calls(); });
    }
  }

  // Cancel, wait, and only then let go.
  static void end(Exchange& state, pplx::cancellation_token_source& canceller) {
    std::optional<pplx::task_completion_event<size_t>> pending;
    {
      const std::lock_guard lock(state.mutex);
      state.given_up = true;
      state.bytes = nullptr;
      pending = std::exchange(state.consumed, std::nullopt);
    }
    canceller.cancel();
    if (pending) pending->set(0);
    std::unique_lock lock(state.mutex);
    state.changed.wait_for(lock, kCancelGrace, [&] { return state.done; });
  }

  const TransportOptions options_;
  const web::uri base_;
  const std::shared_ptr<VerifyReport> report_;
  const std::shared_ptr<InFlight> in_flight_;
  std::mutex mutex_;
  ClientCertificate shown_;  // of options_.certificate, by the connections of client_
  std::shared_ptr<HttpClient> client_;
};

Result<std::unique_ptr<CpprestTransport>> CpprestTransport::create(TransportOptions options) {
  static std::once_flag pool_made;  // the library's pool is one per process
  std::call_once(pool_made, [] { crossplat::threadpool::initialize_with_threads(kPoolThreads); });

  const auto refuse = [&](std::string_view why) {
    return fail(ExitCode::kConfig, fmt::format("the server address '{}' {}", options.server, why));
  };
  web::uri base;
  try {
    base = web::uri(options.server);
  } catch (const web::uri_exception& error) {
    return refuse("is not a URL: it should look like https://host:6443");
  }
  if (base.scheme() != "https" && base.scheme() != "http") return refuse("must begin with https:// or http://");
  if (base.host().empty()) return refuse("names no host");
  accept_bracketed_addresses();
  if (const auto good = check_tls_material(options); !good) return tl::make_unexpected(good.error());
  return std::unique_ptr<CpprestTransport>(
      new CpprestTransport(std::make_unique<Impl>(std::move(options), std::move(base))));
}

CpprestTransport::CpprestTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CpprestTransport::~CpprestTransport() = default;

TransportResult<Response> CpprestTransport::send(const Request& request, Milliseconds deadline,
                                                 std::stop_token cancel) {
  return impl_->exchange(request, nullptr, {deadline, deadline}, cancel);
}

TransportResult<Response> CpprestTransport::stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                                   std::stop_token cancel) {
  return impl_->exchange(request, &sink, {limits.idle, limits.total}, cancel);
}

}  // namespace oarlock::kube
