// An asynchronous HTTP/1.1 server for health, metrics and status: GET and HEAD on exact paths, IPv4 and IPv6, optional
// TLS; and POST for small reports. It is built for networks where any peer may be hostile: each limit below bounds what
// one peer, or all of them together, can make the server hold, and a peer that exceeds a limit loses its own connection
// only.
//
// Threads. One I/O thread owns every socket and runs the immediate handlers. kWorkers threads run the other handlers
// and the authorization; a server without kShared routes has none. A slow client holds no thread; it costs its
// connection's state (about 2 KiB, plus the part of the head that it has sent) until its deadline.
//
// Liveness. A route of kind kImmediate is answered by the I/O thread as soon as its request is read: it is not
// authorized, does not wait for a worker, and is exempt from the limits on reviews and responses. The remaining ways to
// delay it are closed as follows. When the connections are used up, the new connection replaces one of the peer that
// holds the most connections (ConnectionTable::admit()), so a kubelet, which holds one, is served. Each event costs the
// I/O thread microseconds (for TLS one handshake, milliseconds), and at most HttpLimits::connections of them can be
// pending. Where a peer may fill the I/O thread with TLS handshakes, serve the probes from a second server, without
// TLS: its I/O thread waits for no other client. With HttpLimits::has_lowest_priority, a busy process delays every
// response: the path is then no liveness probe.
//
// Shared responses. One call of a handler of kind kShared serves all requests that arrived before it began; they share
// its body. The calls are at least HttpLimits::response_period apart, so any number of scrapers, however fast, costs a
// few bodies per second. When the bodies together would exceed HttpLimits::response_bytes, readers yield, those of the
// peer with the most connections first, and among equal peers those that have not read for the longest time: neither a
// high request rate nor a slow reader can starve another client.
//
// Connections. One request per connection: each response carries "Connection: close", and bytes after the request are
// discarded. Every idle connection therefore has an incomplete request, which request_time limits. A peer that sends
// its bytes in more than a few hundred pieces is disconnected, because each piece costs the I/O thread time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "common/error.h"

namespace oarlock {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Called on a worker for each request of a route of kind kShared, with the Authorization header or "", and with whether
// a request from the same address was authorized in the last ten minutes. A value is sent instead of the handler's
// response. It may block.
using HttpReview = std::function<std::optional<HttpResponse>(const std::string& path, const std::string& authorization,
                                                             bool is_known_address)>;

// Receives the query string without "?"; "" for kShared, and the body for kPost. An exception becomes a response with
// status 500.
using HttpHandler = std::function<HttpResponse(const std::string& query)>;

enum class HandlerKind {
  kImmediate,  // runs on the I/O thread: it must not block, neither on I/O nor on a lock that is held for long
  kPost,       // as kImmediate, for POST instead of GET and HEAD
  kShared,     // runs on a worker thread, after authorization: it may block; its response is the same for all requests
};

// A handler must be thread-safe. A route is implicitly made from a callable, which is then of kind kShared.
struct HttpRoute {
  template <typename Handler, typename = std::enable_if_t<std::is_constructible_v<HttpHandler, Handler>>>
  HttpRoute(Handler handler_of_route, HandlerKind kind_of_route = HandlerKind::kShared)
      : handler(std::move(handler_of_route)), kind(kind_of_route) {}

  HttpHandler handler;
  HandlerKind kind;
};

using HttpRoutes = std::map<std::string, HttpRoute>;  // by path; unknown paths are answered with 404

struct HttpLimits {
  // Limits of one request. A request that exceeds them is rejected with 414, 431 or 413.
  size_t request_line_bytes = 4096;
  size_t head_bytes = 8192;  // the request line and all fields
  size_t fields = 64;
  size_t body_bytes = 4096;  // by its Content-Length; bodies of GET and HEAD are discarded
  size_t post_bytes = 0;     // the same for POST; 0: POST is rejected with 405

  std::chrono::milliseconds request_time{5000};    // from accept() to the end of the head, with the TLS handshake
  std::chrono::milliseconds response_time{10000};  // for writing the whole response
  std::chrono::milliseconds close_time{1000};      // from the end of the response until the peer closes

  // A peer is an IPv4 address, or an IPv6 network of 64 bits.
  size_t connections = 256;
  size_t connections_per_peer = 64;
  // A TLS connection needs a session from its ClientHello on, which takes about 100 KiB. Its ClientHello may have
  // head_bytes.
  size_t tls_sessions = 16;
  size_t tls_sessions_per_peer = 8;

  // Requests that are being authorized at the same time. Further requests receive 503 and Retry-After. A connection is
  // not replaced meanwhile. So with TLS and fewer sessions than reviews, peers can hold all sessions for as long as
  // `refuse` takes: it should answer immediately where it cannot review a request soon.
  size_t reviews = 32;
  size_t reviews_per_peer = 8;

  // Total size of the shared bodies that are being written, and of the one that is being rendered. One of those that
  // are being written is exempt.
  size_t response_bytes = size_t{3} << 20;
  // Minimum time from the end of a call of a shared handler to the next one. Requests wait for it.
  std::chrono::milliseconds response_period{250};

  // The I/O thread has the lowest priority of the scheduler, for a process whose own work is more important than its
  // clients.
  bool has_lowest_priority = false;
};

struct HttpServerOptions {
  // PEM file with the certificate (and its chain) and its key: enables TLS 1.2 and 1.3. A connection is served with
  // the content that the file has when its session begins; if that cannot be used, with the previous content.
  // Empty: plain HTTP.
  std::string certificate{};
  // Called on the I/O thread, once for each content of the file that cannot be used, with the reason. It must not
  // block.
  std::function<void(const std::string& reason)> on_unusable_certificate{};
  HttpReview refuse{};
  // POST requests without this bearer token are rejected with 401. Required if there are routes of kind kPost.
  std::string post_token{};
  HttpLimits limits{};
};

class HttpServer {
 public:
  static constexpr size_t kWorkers = 4;  // more than an authorization filter blocks, so that known clients never wait

  // Listens on address:port ("0.0.0.0", "127.0.0.1", "::1"; "::" is all addresses, IPv4 and IPv6, as far as the machine
  // has them); port 0 picks a free one. Fails with kUnavailable and a message that names the port when it is taken, and
  // with kConfig when the certificate cannot be used.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, int port, const HttpRoutes& routes,
                                                   const HttpServerOptions& options = {});

  // Closes all connections and waits for the handlers that are running; waiting requests are dropped.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  class Impl;
  HttpServer(std::unique_ptr<Impl> impl, int port);
  std::unique_ptr<Impl> impl_;
  int port_;
};

}  // namespace oarlock
