// One connection of HttpServer: reads a request, writes a response, and closes in order; and the certificate of its TLS
// connections. Private to http, and the only header outside of http/client that includes Boost.
#pragma once

#include <openssl/types.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "http/connection_table.h"
#include "http/request_head.h"
#include "http/server.h"

namespace oarlock {

// The certificate of a TLS server, read from a file that may be replaced while the server runs. Not thread-safe.
class TlsCertificate {
 public:
  using Report = std::function<void(const std::string& reason)>;

  // `file` is a PEM file with the certificate, its chain and its unencrypted key. `report`, which may be empty, is
  // called once for each content of the file that cannot be used.
  TlsCertificate(std::string file, Report report) : file_(std::move(file)), report_(std::move(report)) {}

  // Returns the settings for a new connection, with the current content of the file. If that is invalid, returns the
  // settings of the previous content, or null if there are none. Reads the file only if stat(2) reports a change.
  std::shared_ptr<SSL_CTX> context();

 private:
  // Device, inode, size, and time of the last change in seconds and nanoseconds.
  using Version = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;
  Version version() const;

  const std::string file_;
  const Report report_;
  Version read_version_{};  // of the content that was last read, whether valid or not
  std::shared_ptr<SSL_CTX> context_;
};

using SharedResponse = std::shared_ptr<const HttpResponse>;

class Connection;

// Receives the events of connections. All calls are made on the I/O thread.
class ConnectionOwner {
 public:
  // The ClientHello of a TLS connection is complete. Returns the settings of its session; null to end the connection.
  virtual std::shared_ptr<SSL_CTX> on_client_hello(ConnectionTable::Id id) = 0;
  // The request is complete. The owner calls Connection::respond() exactly once, immediately or later.
  virtual void on_request(std::shared_ptr<Connection> connection, HttpRequest request) = 0;
  // The peer, or the kernel's buffer for it, has taken a part of the response.
  virtual void on_progress(ConnectionTable::Id id) = 0;
  // The response has been written; the peer has yet to close the connection.
  virtual void on_response_sent(ConnectionTable::Id id) = 0;
  // The connection is being destroyed.
  virtual void on_end(ConnectionTable::Id id) = 0;
  // Memory for bytes that connections read and do not use. All of them share it, because its content has no meaning.
  virtual std::span<char> discard_buffer() = 0;

 protected:
  ~ConnectionOwner() = default;
};

// A plain or TLS connection. Its pending operations hold references to it; when the last one completes, the connection
// is closed and destroyed. All functions are called on the I/O thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionTable::Id id, ConnectionOwner& owner, const HttpLimits& limits)
      : id_(id), owner_(owner), limits_(limits), reader_(limits) {}
  virtual ~Connection() { owner_.on_end(id_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  ConnectionTable::Id id() const { return id_; }

  // Starts to read the request, within HttpLimits::request_time.
  virtual void start() = 0;

  // Writes the response, within HttpLimits::response_time, and then waits for the peer to close the connection.
  virtual void respond(SharedResponse response) = 0;
  void respond(HttpResponse response) { respond(std::make_shared<const HttpResponse>(std::move(response))); }

  // Cancels pending operations.
  virtual void close() = 0;

 protected:
  const ConnectionTable::Id id_;
  ConnectionOwner& owner_;
  const HttpLimits& limits_;
  RequestHeadReader reader_;
  bool is_head_ = false;
  std::string response_head_;
  SharedResponse response_;
  size_t discarded_ = 0;
  std::array<char, kPieceBytes> chunk_;
};

// Both take the socket of an accepted connection; `owner` and `limits` must outlive the connection.
std::shared_ptr<Connection> make_connection(ConnectionTable::Id id, ConnectionOwner& owner, const HttpLimits& limits,
                                            boost::asio::ip::tcp::socket socket);
std::shared_ptr<Connection> make_tls_connection(ConnectionTable::Id id, ConnectionOwner& owner,
                                                const HttpLimits& limits, boost::asio::ip::tcp::socket socket);

}  // namespace oarlock
