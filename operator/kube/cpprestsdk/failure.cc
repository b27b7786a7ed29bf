#include "operator/kube/cpprestsdk/failure.h"

#include <cpprest/http_msg.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <string>

#include "operator/kube/cpprestsdk/message.h"

namespace oarlock::kube {
namespace {

using Kind = TransportError::Kind;
using Socket = boost::asio::ip::tcp::socket;

std::string reason_of(const web::http::http_exception& error) {
  return error.error_code() ? error.error_code().message() : error.what();
}

// Why the proxy has not opened a tunnel. The library gives the status without its text.
std::string proxy_problem(const std::string& text) {
  return text.ends_with(" 407") ? "407 Proxy Authentication Required" : text;
}

TransportError classify(const web::http::http_exception& error, const std::string& proxy) {
  const std::string text = error.what();
  const auto contains = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (!proxy.empty() && (contains("proxy") || contains("to connect") || contains("resolv")))
    return {Kind::kConnect, fmt::format("no connection through the proxy {}: {}", proxy, proxy_problem(text))};
  if (contains("resolving address") || contains("resolve address"))
    return {Kind::kConnect, "the host name cannot be resolved"};
  if (contains("Failed to connect")) return {Kind::kConnect, fmt::format("no connection: {}", reason_of(error))};
  if (contains("SSL handshake")) {
    const char* reason = ERR_reason_error_string(static_cast<unsigned long>(error.error_code().value()));
    return {Kind::kTls, fmt::format("TLS handshake failed: {}; the server may refuse the client certificate, or may "
                                    "not use TLS",
                                    reason != nullptr ? reason : reason_of(error))};
  }
  return {Kind::kBroken, fmt::format("the connection broke: {}", text)};
}

}  // namespace

bool is_stale(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const StaleConnection&) {
    return true;
  } catch (...) {
    return false;
  }
}

TransportError classify_failure(const std::exception_ptr& error, const std::string& proxy) {
  try {
    std::rethrow_exception(error);
  } catch (const web::http::http_exception& failure) {
    return classify(failure, proxy);
  } catch (const StaleConnection& failure) {
    return {Kind::kConnect, failure.what()};
  } catch (const InvalidResponse& failure) {
    return {Kind::kBroken, failure.what()};
  } catch (const std::exception& failure) {  // of TlsSettings: no connection has been made
    return {Kind::kTls, failure.what()};
  }
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

}  // namespace oarlock::kube
