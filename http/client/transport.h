// Interface for HTTP requests and streaming responses to one server: the Kubernetes API server, or MLflow's.
//
// A program links exactly one implementation; each is a library that defines create_transport():
// oarlock_http_client_beast (this directory), or oarlock_http_client_cpprestsdk. For programs that use the Kubernetes
// API, oarlock_http_transport is the implementation that the CMake variable OARLOCK_KUBE_TRANSPORT selects.
//
// Every implementation must pass tests/integration/operator/transport_*_test.cc. They require that only GET requests
// are retried, that redirects are not followed, that deadlines and cancellation work in every phase of a call, and that
// a slow reader slows the sender down.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "common/error.h"
#include "http/client/credentials.h"

namespace oarlock::http {

using Milliseconds = std::chrono::milliseconds;

struct Request {
  std::string method = "GET";
  std::string target;          // path and query, percent-encoded: "/api/v1/pods?limit=500"
  std::string body;            // ignored for GET; may be empty
  std::string content_type;    // of the body
  bool metadata_only = false;  // requests the object's metadata only (metav1.PartialObjectMetadata)

  bool operator==(const Request&) const = default;
};

struct Response {
  int status = 0;
  std::string body;
  std::optional<std::chrono::seconds> retry_after;  // value of the Retry-After header, at most one minute

  bool ok() const { return status >= 200 && status < 300; }
};

// Phase in which a call failed. It determines whether the server may have acted on the request.
enum class TransportErrorKind {
  kConnect,    // No connection was established. The server has not seen the request.
  kTls,        // The TLS handshake failed. The server has not seen the request.
  kBroken,     // The connection ended before the response was complete. The server may have acted on the request.
  kDeadline,   // The response was not complete before the deadline. The server may have acted on the request.
  kIdle,       // No byte was received within the idle limit.
  kCancelled,  // The caller's stop token requested a stop.
  kRefused,    // The client rejected the call: invalid credentials, too large a response, or the sink returned false.
};

// The call did not return a complete response.
struct TransportError {
  TransportErrorKind kind;
  std::string message;  // one line, which begins with the server's address

  // Whether the server may be unreachable, in which case its other connections are unusable too.
  bool affects_other_connections() const {
    return kind == TransportErrorKind::kBroken || kind == TransportErrorKind::kDeadline ||
           kind == TransportErrorKind::kIdle;
  }
};

template <typename T>
using TransportResult = tl::expected<T, TransportError>;

inline tl::unexpected<TransportError> failed(TransportErrorKind kind, std::string message) {
  return tl::make_unexpected(TransportError{kind, std::move(message)});
}

// Receives the body of a streamed response, on the thread that called Transport::stream().
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  // Consumes the next bytes of the body. The transport reads more from the network only after this has returned.
  // Returns false to end the stream.
  virtual bool write(std::string_view bytes) = 0;
};

struct StreamLimits {
  Milliseconds idle;   // longest time without a received byte, including the wait for the head of the response
  Milliseconds total;  // longest duration of the whole call
};

// Thread-safe. Every call blocks the calling thread.
class Transport {
 public:
  virtual ~Transport() = default;

  // Sends a request and returns the complete response, with any status. "***" replaces the credentials of the
  // call in the body of a response that is not 2xx, because its text ends up in logs and messages. Fails with kRefused
  // if the body is larger than kMaxResponseBytes.
  virtual TransportResult<Response> send(const Request& request, Milliseconds deadline, std::stop_token cancel) = 0;

  // Sends a request and writes the body of a 2xx response to `sink`; the returned body is then empty. Any other
  // response is returned completely. Success means that the server ended the response properly.
  virtual TransportResult<Response> stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                           std::stop_token cancel) = 0;

  // Replaces the credentials of recent calls by "***" in a text that the server has sent. Not needed for
  // bodies of responses that are not 2xx. Default: the implementation has no credentials.
  virtual std::string mask_credentials(std::string text) const { return text; }

  // Closes the connections that have been idle for a while, and returns their number. Default: the implementation
  // keeps no idle connections, or closes them by itself.
  virtual size_t close_idle_connections() { return 0; }

  // An object of Kubernetes takes at most 1.5 MiB in etcd, and several times that as JSON.
  static constexpr size_t kMaxResponseBytes = 8u << 20;
};

struct TransportOptions {
  // URL of the API server: "https://10.0.0.1:443" or "https://[fd00::1]:443", with a path prefix if a gateway needs it.
  std::string server;
  // The only certificate authorities that are trusted. Empty: those of the system.
  Pem ca;
  // Whether the server's certificate is verified. False for a kubeconfig's insecure-skip-tls-verify.
  bool verify = true;
  // The name that the server's certificate must have. Empty: the host of `server`.
  std::string tls_server_name;
  Pem client_certificate;
  Pem client_key;
  // Bearer token of each request. Null: none.
  std::shared_ptr<TokenSource> token;
  // Scheme of the Authorization header that contains the token. "Basic" requires a token that is the base64 of
  // "user:password".
  std::string token_scheme = "Bearer";
  // Client certificate, which takes precedence over `client_certificate`. Null: none.
  std::shared_ptr<CertificateSource> certificate;
  // "http://user:password@proxy:3128" or https. Empty: no proxy. It is used for every server, whatever its address is.
  std::string proxy;
  std::string user_agent = "oarlock";
  // Further header fields of each request, such as those of impersonation.
  std::vector<std::pair<std::string, std::string>> headers;
  // Connections that have been idle for longer are closed. kube-apiserver closes them after 90 s.
  Milliseconds max_idle_time{10000};
};

// Creates the transport that this program is linked with. Checks the server's address, the proxy and the PEM material,
// but opens no connection. Fails with kConfig or kNoInput and a message of one line. Thread-safe.
Result<std::unique_ptr<Transport>> create_transport(TransportOptions options);

}  // namespace oarlock::http
