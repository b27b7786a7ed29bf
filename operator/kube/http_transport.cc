#include "operator/kube/http_transport.h"

#include <fmt/format.h>

#include <utility>

namespace oarlock::kube {
namespace {

using Kind = TransportError::Kind;

// The other end may be gone, and so every connection to it.
bool tells_of_others(Kind kind) { return kind == Kind::kBroken || kind == Kind::kDeadline || kind == Kind::kIdle; }

}  // namespace

Result<std::unique_ptr<HttpTransport>> HttpTransport::create(TransportOptions options) {
  Result<ServerAddress> server = parse_server_address(options.server);
  if (!server) return tl::make_unexpected(server.error());
  if (const auto good = check_tls_material(options); !good) return tl::make_unexpected(good.error());
  return std::unique_ptr<HttpTransport>(new HttpTransport(std::move(options), std::move(*server)));
}

HttpTransport::HttpTransport(TransportOptions options, ServerAddress server)
    : options_(std::move(options)), server_(std::move(server)), contexts_(options_) {}

TransportResult<Response> HttpTransport::send(const Request& request, Milliseconds deadline, std::stop_token cancel) {
  return call(request, nullptr, {.idle = deadline, .total = deadline}, cancel);
}

TransportResult<Response> HttpTransport::stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                                std::stop_token cancel) {
  return call(request, &sink, limits, cancel);
}

TransportResult<Response> HttpTransport::call(const Request& request, ByteSink* sink, StreamLimits limits,
                                              const std::stop_token& cancel) {
  Waiter waiter(limits, cancel);
  TransportResult<Answer> answer = exchange(request, sink, waiter);
  if (!answer) return failed(answer.error().kind, fmt::format("{}: {}", options_.server, answer.error().message));
  if (answer->response.status == 401 && options_.token != nullptr) options_.token->drop();
  return std::move(answer->response);
}

TransportResult<Answer> HttpTransport::exchange(const Request& request, ByteSink* sink, Waiter& waiter) {
  const TransportResult<std::string> text = text_of(request, waiter);
  if (!text) return tl::make_unexpected(text.error());
  std::unique_ptr<Connection> connection = pool_.take();
  for (;;) {
    const bool used = connection != nullptr;
    if (!used) {
      auto opened = open(waiter);
      if (!opened) return tl::make_unexpected(opened.error());
      connection = std::move(*opened);
    }
    const size_t before = connection->received();
    TransportResult<Answer> answer =
        connection->write(*text, waiter).and_then([&] { return read_answer(*connection, sink, waiter); });
    if (answer) {
      if (answer->keep) keep(std::move(connection));
      return answer;
    }
    if (tells_of_others(answer.error().kind)) pool_.clear();
    // A kept connection may end while the request is on its way. Only a GET can be sent again without harm.
    const bool unanswered = answer.error().kind == Kind::kBroken && connection->received() == before;
    if (!used || !unanswered || request.method != "GET") {
      if (answer.error().kind == Kind::kBroken) answer.error().message.insert(0, "the connection broke: ");
      return answer;
    }
    connection.reset();
  }
}

TransportResult<std::string> HttpTransport::text_of(const Request& request, const Waiter& waiter) {
  const auto left = std::chrono::duration_cast<Milliseconds>(waiter.end() - std::chrono::steady_clock::now());
  Result<void> is_prepared;
  if (options_.token != nullptr) {
    is_prepared = options_.token->prepare(left);
  } else if (options_.certificate != nullptr) {
    is_prepared = options_.certificate->prepare(left);
  }
  if (!is_prepared) return failed(Kind::kRefused, is_prepared.error().message);
  RequestFields fields{.host = server_.header, .user_agent = options_.user_agent, .token = ""};
  if (options_.token != nullptr) {
    Result<std::string> token = options_.token->token();
    if (!token) return failed(Kind::kRefused, token.error().message);
    fields.token = std::move(*token);
  }
  if (const auto shown = certificate(); !shown) return failed(Kind::kRefused, shown.error().message);
  return request_text(request, server_.prefix, fields);
}

Result<ClientCertificate> HttpTransport::certificate() {
  if (options_.certificate == nullptr) return {};
  Result<ClientCertificate> now = options_.certificate->certificate();
  if (!now) return now;
  const std::lock_guard lock(mutex_);
  if (*now != shown_) {
    shown_ = *now;
    pool_.clear();
  }
  return now;
}

TransportResult<std::unique_ptr<Connection>> HttpTransport::open(Waiter& waiter) {
  if (!server_.tls) return Connection::open(server_, {}, waiter);
  ClientCertificate shown;
  {
    const std::lock_guard lock(mutex_);
    shown = shown_;
  }
  const auto context = contexts_.current(shown);
  if (!context) return failed(Kind::kTls, context.error().message);
  const std::string& name = options_.tls_server_name.empty() ? server_.host : options_.tls_server_name;
  return Connection::open(server_, {.context = *context, .name = name}, waiter);
}

void HttpTransport::keep(std::unique_ptr<Connection> connection) {
  if (connection->context() == contexts_.latest()) pool_.give_back(std::move(connection));
}

}  // namespace oarlock::kube
