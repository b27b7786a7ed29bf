// Interface for HTTP requests and streams, whichever library sends them. Implementations (create_transport.h) must pass
// tests/integration/operator/transport_*_test.cc: only a GET is ever sent twice, redirects are not followed, deadlines
// and cancellation work in every phase, and a slow reader slows the sender down.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace oarlock::kube {

using Milliseconds = std::chrono::milliseconds;

struct Request {
  std::string method = "GET";
  std::string target;          // path and query, percent-encoded: "/api/v1/pods?limit=500"
  std::string body;            // of what is not a GET; empty: none
  std::string content_type;    // of the body
  bool metadata_only = false;  // the answer needs the object's metadata alone (metav1.PartialObjectMetadata)

  bool operator==(const Request&) const = default;
};

struct Response {
  int status = 0;
  std::string body;
  std::optional<std::chrono::seconds> retry_after;  // the Retry-After header, at most a minute

  bool ok() const { return status >= 200 && status < 300; }
};

// No (whole) response. By phase, for what the server may have done depends on it.
struct TransportError {
  enum class Kind {
    kConnect,    // no connection: the server has not seen the request
    kTls,        // a connection, but no trust: the server has not seen the request
    kBroken,     // the connection ended early: the server may have acted on the request
    kDeadline,   // no whole response in time: the server may have acted on the request
    kIdle,       // the stream was silent for too long
    kCancelled,  // by the caller's stop token
    kRefused,    // the sink wanted no more, or the response is larger than allowed
  };
  Kind kind;
  std::string message;  // one line with the server's address

  // Whether the server may be gone, and with it every other connection to it.
  bool affects_other_connections() const {
    return kind == Kind::kBroken || kind == Kind::kDeadline || kind == Kind::kIdle;
  }
};

template <typename T>
using TransportResult = tl::expected<T, TransportError>;

inline tl::unexpected<TransportError> failed(TransportError::Kind kind, std::string message) {
  return tl::make_unexpected(TransportError{kind, std::move(message)});
}

// Takes a stream's bytes as they come, on the thread that called stream(). The next bytes are read from the network
// only after write() has returned. False ends the stream.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual bool write(std::string_view bytes) = 0;
};

struct StreamLimits {
  Milliseconds idle;   // longest silence, the wait for the response's head included
  Milliseconds total;  // longest life
};

// Thread-safe. Calls block.
class Transport {
 public:
  virtual ~Transport() = default;

  // The whole response, whatever its status. At most kMaxResponseBytes of body.
  virtual TransportResult<Response> send(const Request& request, Milliseconds deadline, std::stop_token cancel) = 0;

  // A 2xx response's body goes to the sink and the returned body is empty; any other response is returned whole.
  // Success means that the server ended the response properly.
  virtual TransportResult<Response> stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                           std::stop_token cancel) = 0;

  static constexpr size_t kMaxResponseBytes = 32u << 20;
};

}  // namespace oarlock::kube
