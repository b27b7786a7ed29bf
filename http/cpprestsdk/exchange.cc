#include "http/cpprestsdk/exchange.h"

#include <cpprest/producerconsumerstream.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <cerrno>
#include <charconv>
#include <utility>

#include "common/status_macros.h"
#include "http/client/http_transport.h"

namespace oarlock::http {

void OpenRequests::add() {
  const std::lock_guard lock(mutex_);
  ++count_;
}

void OpenRequests::remove() {
  const std::lock_guard lock(mutex_);
  if (--count_ == 0) changed_.notify_all();
}

void OpenRequests::wait_until_none(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return count_ == 0; });
}

void Exchange::start(std::shared_ptr<OpenRequests> open) {
  open_ = std::move(open);
  open_->add();
}

void Exchange::set_head(ResponseHead head) {
  const std::lock_guard lock(mutex_);
  head_ = std::move(head);
  changed_.notify_all();
}

pplx::task<size_t> Exchange::offer(const uint8_t* data, size_t size) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) return pplx::task_from_result(size);
  piece_ = {reinterpret_cast<const char*>(data), size};
  taken_.emplace();
  changed_.notify_all();
  return pplx::create_task(*taken_);
}

void Exchange::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    finished_ = true;
    changed_.notify_all();
  }
  open_->remove();
}

Exchange::Event Exchange::wait(std::chrono::steady_clock::time_point until, const std::stop_token& cancel) {
  std::unique_lock lock(mutex_);
  // The first piece can arrive before the head: cpprestsdk delivers them through different tasks.
  const auto is_ready = [&] { return (taken_ && head_) || finished_; };
  const bool ready = changed_.wait_until(lock, cancel, until, is_ready);
  if (cancel.stop_requested()) return Event::kCancelled;
  if (!ready) return Event::kTimeout;
  return finished_ ? Event::kEnd : Event::kPiece;
}

void Exchange::take() {
  const std::lock_guard lock(mutex_);
  complete_piece();
}

void Exchange::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  complete_piece();  // a task that is never completed would keep the request, and with it this exchange, alive forever
}

void Exchange::complete_piece() {
  if (!taken_) return;
  const size_t size = std::exchange(piece_, {}).size();
  std::exchange(taken_, std::nullopt)->set(size);
}

ResponseBuffer::ResponseBuffer(std::shared_ptr<Exchange> exchange)
    : basic_producer_consumer_buffer(0), exchange_(std::move(exchange)) {}

pplx::task<size_t> ResponseBuffer::putn_nocopy(const uint8_t* data, size_t size) {
  return exchange_->offer(data, size);
}

namespace {

using Socket = boost::asio::ip::tcp::socket;

// Returns a body that can be read only once. cpprestsdk repeats every request, including POST, if a reused connection
// ends without a response and the body can be rewound. Only GET may be repeated, so every other request has such a
// body, even an empty one.
concurrency::streams::istream single_use_body(const std::string& text) {
  concurrency::streams::producer_consumer_buffer<uint8_t> buffer;
  buffer.putn_nocopy(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  buffer.close(std::ios_base::out);
  return buffer.create_istream();
}

// Several Content-Length headers arrive as a list, which is not a number.
bool is_length(const std::string& value) {
  uint64_t length = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
  return error == std::errc() && end == value.data() + value.size();
}

std::string reason_of(const web::http::http_exception& error) {
  return error.error_code() ? error.error_code().message() : error.what();
}

// The library reports the status of a proxy that does not open a tunnel without its text.
std::string proxy_reason(const std::string& text) {
  return text.ends_with(" 407") ? "407 Proxy Authentication Required" : text;
}

TransportError classify(const web::http::http_exception& error, bool has_proxy) {
  const std::string text = error.what();
  const auto contains = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (has_proxy && (contains("proxy") || contains("to connect") || contains("resolv")))
    return {TransportErrorKind::kConnect, fmt::format("no connection: {}", proxy_reason(text))};
  if (contains("resolving address") || contains("resolve address"))
    return {TransportErrorKind::kConnect, "the host name cannot be resolved"};
  if (contains("Failed to connect"))
    return {TransportErrorKind::kConnect, fmt::format("no connection: {}", reason_of(error))};
  if (contains("SSL handshake")) {
    const char* reason = ERR_reason_error_string(static_cast<unsigned long>(error.error_code().value()));
    return {TransportErrorKind::kTls,
            fmt::format("TLS handshake failed: {}; the server may reject the client certificate, or may not use TLS",
                        reason != nullptr ? reason : reason_of(error))};
  }
  return {TransportErrorKind::kBroken, fmt::format("connection broken: {}", text)};
}

}  // namespace

TransportResult<web::http::http_request> make_request(const Request& request, const RequestHeaders& headers,
                                                      const std::shared_ptr<Exchange>& exchange) {
  RETURN_IF_ERROR(check_request(request, headers.token));
  web::http::http_request out(request.method);
  out.set_request_uri(request.target);
  if (request.method != "GET")
    out.set_body(single_use_body(request.body), request.body.size(), content_type_header(request));
  out.headers().add("Host", headers.host);
  out.headers().add("User-Agent", headers.user_agent);
  out.headers().add("Accept", accept_header(request));
  if (!headers.token.empty()) out.headers().add("Authorization", headers.token_scheme + " " + headers.token);
  for (const auto& [name, value] : headers.further) {
    // The library would send one field with both values.
    if (out.headers().has(name))
      return failed(TransportErrorKind::kRefused, "cpprestsdk cannot send several header fields " + name);
    out.headers().add(name, value);
  }
  const concurrency::streams::streambuf<uint8_t> body(std::make_shared<ResponseBuffer>(exchange));
  out.set_response_stream(body.create_ostream());
  return out;
}

ResponseHead parse_head(const web::http::http_response& response) {
  const auto length = response.headers().find("Content-Length");
  if (length != response.headers().end() && (!is_length(length->second) || response.headers().has("Transfer-Encoding")))
    throw InvalidResponse("invalid HTTP response: the length of the body is ambiguous");
  ResponseHead head{.status = response.status_code(), .retry_after = std::nullopt};
  const auto retry_after = response.headers().find("Retry-After");
  if (retry_after != response.headers().end()) head.retry_after = parse_retry_after(retry_after->second);
  return head;
}

void check_connection(void* handle, bool is_tls) {
  Socket* socket = static_cast<Socket*>(handle);
  if (is_tls) {
    auto* stream = static_cast<boost::asio::ssl::stream<Socket&>*>(handle);
    socket = &stream->next_layer();
    if (SSL_pending(stream->native_handle()) > 0) throw StaleConnection();
  }
  if (!socket->is_open()) return;
  char byte = 0;
  if (::recv(socket->native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) throw StaleConnection();
  if (errno != EAGAIN && errno != EWOULDBLOCK) throw StaleConnection();
}

bool is_stale(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const StaleConnection&) {
    return true;
  } catch (...) {
    return false;
  }
}

TransportError to_transport_error(const std::exception_ptr& error, bool has_proxy) {
  try {
    std::rethrow_exception(error);
  } catch (const web::http::http_exception& failure) {
    return classify(failure, has_proxy);
  } catch (const StaleConnection& failure) {
    return {TransportErrorKind::kConnect, failure.what()};
  } catch (const InvalidResponse& failure) {
    return {TransportErrorKind::kBroken, failure.what()};
  } catch (const std::exception& failure) {  // thrown by TlsSettings before a connection is made
    return {TransportErrorKind::kTls, failure.what()};
  }
}

}  // namespace oarlock::http
