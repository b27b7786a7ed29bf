#include "common/http/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <deque>
#include <exception>
#include <thread>
#include <unordered_map>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/http/connection_table.h"
#include "common/http/request_head.h"
#include "common/http/tls_certificate.h"

namespace oarlock {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using net::ip::tcp;
using TlsStream = net::ssl::stream<beast::tcp_stream>;

constexpr int kBacklog = 512;
// Of the kernel, per connection; without these it would buffer up to several MiB for a peer that does not read.
constexpr int kSendBuffer = 64 << 10;
constexpr int kReceiveBuffer = 16 << 10;
// Bytes that are discarded after a response, so that the peer can read it before the connection is reset.
constexpr size_t kMostDiscarded = 64 << 10;
constexpr auto kAcceptPause = std::chrono::milliseconds(50);

using SharedResponse = std::shared_ptr<const HttpResponse>;

HttpResponse run(const HttpHandler& handler, const std::string& query) {
  try {
    return handler(query);
  } catch (const std::exception& error) {  // the boundary of a request
    return text_response(500, std::string(error.what()) + "\n");
  }
}

HttpResponse unavailable() { return text_response(503, "too many requests at the same time; try again\n"); }

// "10.0.0.1", also when it is connected through an IPv6 socket.
std::string peer_name(const net::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}

template <typename Socket>
void close_on_exec(Socket& socket) {
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

class Connection;

// What a connection needs of its server. All calls are made on the I/O thread.
class ConnectionOwner {
 public:
  virtual void on_request(std::shared_ptr<Connection> connection, HttpRequest request) = 0;
  virtual void on_response_sent(ConnectionTable::Id id) = 0;
  virtual void on_end(ConnectionTable::Id id) = 0;

 protected:
  ~ConnectionOwner() = default;
};

// One request and its response. Pending operations hold references; the last one closes the connection.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionTable::Id id, ConnectionOwner& owner, const HttpLimits& limits)
      : id_(id), owner_(owner), limits_(limits), reader_(limits) {}
  virtual ~Connection() { owner_.on_end(id_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  ConnectionTable::Id id() const { return id_; }
  virtual void start() = 0;
  virtual void respond(SharedResponse response) = 0;  // once, after on_request()
  void respond(HttpResponse response) { respond(std::make_shared<const HttpResponse>(std::move(response))); }
  virtual void close() = 0;  // ends pending operations

 protected:
  const ConnectionTable::Id id_;
  ConnectionOwner& owner_;
  const HttpLimits& limits_;
  RequestHeadReader reader_;
  bool is_head_ = false;
  std::string response_head_;
  SharedResponse response_;
  size_t discarded_ = 0;
  std::array<char, 512> chunk_;
};

template <typename Stream>
class StreamConnection final : public Connection {
 public:
  template <typename... StreamArguments>
  StreamConnection(ConnectionTable::Id id, ConnectionOwner& owner, const HttpLimits& limits,
                   StreamArguments&&... arguments)
      : Connection(id, owner, limits), stream_(std::forward<StreamArguments>(arguments)...) {}

  void start() override {
    set_reset_on_close(true);
    tcp_layer().expires_after(limits_.request_time);
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      stream_.async_handshake(net::ssl::stream_base::server, [self = self()](error_code error) {
        if (!error) self->read();
      });
    } else {
      read();
    }
  }

  using Connection::respond;
  void respond(SharedResponse response) override {
    response_head_ = response_head(*response);
    response_ = std::move(response);
    tcp_layer().expires_after(limits_.response_time);
    const net::const_buffer body = is_head_ ? net::const_buffer() : net::buffer(response_->body);
    const std::array<net::const_buffer, 2> buffers{net::buffer(response_head_), body};
    net::async_write(stream_, buffers, [self = self()](error_code error, size_t) {
      if (!error) self->finish();
    });
  }

  void close() override { tcp_layer().close(); }

 private:
  std::shared_ptr<StreamConnection> self() { return std::static_pointer_cast<StreamConnection>(shared_from_this()); }
  beast::tcp_stream& tcp_layer() { return beast::get_lowest_layer(stream_); }

  void read() {
    stream_.async_read_some(net::buffer(chunk_), [self = self()](error_code error, size_t bytes) {
      if (!error) self->on_read(bytes);
    });
  }

  void on_read(size_t bytes) {
    auto outcome = reader_.add({chunk_.data(), bytes});
    if (!outcome) return read();
    if (!*outcome) return respond(std::move(outcome->error()));
    is_head_ = (*outcome)->is_head;
    owner_.on_request(shared_from_this(), std::move(**outcome));
  }

  // Resetting drops the bytes that the kernel still holds for a peer that does not read them.
  void set_reset_on_close(bool value) {
    error_code ignored;
    tcp_layer().socket().set_option(net::socket_base::linger(value, 0), ignored);
  }

  void finish() {
    response_.reset();
    set_reset_on_close(false);
    owner_.on_response_sent(id_);
    tcp_layer().expires_after(limits_.close_time);
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      stream_.async_shutdown([self = self()](error_code) { self->shut_down(); });
    } else {
      shut_down();
    }
  }

  // Closing a socket with unread bytes resets the connection, and the peer could lose the response.
  void shut_down() {
    error_code ignored;
    tcp_layer().socket().shutdown(tcp::socket::shutdown_send, ignored);
    discard();
  }

  void discard() {
    tcp_layer().async_read_some(net::buffer(chunk_), [self = self()](error_code error, size_t bytes) {
      self->discarded_ += bytes;
      if (!error && self->discarded_ < kMostDiscarded) self->discard();
    });
  }

  Stream stream_;
};

}  // namespace

class HttpServer::Impl final : public ConnectionOwner {
 public:
  Impl(HttpRoutes routes, HttpServerOptions options)
      : routes_(std::move(routes)),
        options_(std::move(options)),
        certificate_(options_.certificate),
        table_(options_.limits, is_tls()) {}

  ~Impl() {
    net::post(io_, [this] {
      for (const auto& [id, connection] : connections_) connection->close();
      io_.stop();
    });
    if (thread_.joinable()) thread_.join();
    workers_.stop();
    workers_.join();
  }

  Result<void> check_certificate() {
    if (!is_tls() || certificate_.context()) return {};
    return fail(ExitCode::kConfig, fmt::format("{}: no usable certificate and key", options_.certificate));
  }

  // Returns the port; -1 if the address cannot be used.
  int listen(const std::string& address, int port) {
    error_code error;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(address, std::to_string(port), tcp::resolver::passive, error);
    for (const auto& entry : found) {
      if (const int bound = listen(entry.endpoint()); bound >= 0) return bound;
    }
    return -1;
  }

  void start() {
    accept();
    thread_ = std::thread([this] { run_io(); });
  }

 private:
  bool is_tls() const { return !options_.certificate.empty(); }

  int listen(const tcp::endpoint& endpoint) {
    error_code error;
    const auto set = [&](const auto& option) {
      if (!error) acceptor_.set_option(option, error);
    };
    acceptor_.open(endpoint.protocol(), error);
    if (error) return -1;
    close_on_exec(acceptor_);
    set(tcp::acceptor::reuse_address(true));
    if (endpoint.address().is_v6()) set(net::ip::v6_only(false));  // "::" includes IPv4, whatever sysctl says
    set(net::socket_base::send_buffer_size(kSendBuffer));          // accepted sockets inherit both sizes
    set(net::socket_base::receive_buffer_size(kReceiveBuffer));
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(kBacklog, error);
    const int port = error ? -1 : acceptor_.local_endpoint(error).port();
    if (!error) return port;
    acceptor_.close(error);
    return -1;
  }

  // An exception (no memory) ends the connection whose operation threw it.
  void run_io() {
    while (!io_.stopped()) {
      try {
        io_.run();
      } catch (const std::exception&) {
      }
    }
  }

  void accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error) return recover_from(error);
      accept();
      admit(std::move(socket));
    });
  }

  // The process has no descriptors left (accept(2) then fails even if no connection is pending), or the kernel no
  // memory. Each attempt is paid for with a connection or with a pause, so that the errors cannot use up the CPU.
  void recover_from(error_code error) {
    const auto again = [this](error_code) { accept(); };
    pollfd pending{.fd = acceptor_.native_handle(), .events = POLLIN, .revents = 0};
    if (::poll(&pending, 1, 0) == 0) return acceptor_.async_wait(tcp::acceptor::wait_read, again);
    if (error == net::error::no_descriptors) {
      if (const auto replaced = table_.replace_one()) {
        close(*replaced);
        return accept();
      }
    }
    accept_timer_.expires_after(kAcceptPause);
    accept_timer_.async_wait(again);
  }

  void admit(tcp::socket socket) {
    error_code error;
    close_on_exec(socket);
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // the peer has closed it already
    const auto admission = table_.admit(peer_name(peer.address()));
    if (!admission) return;
    if (admission->replaced) close(*admission->replaced);
    const auto connection = make_connection(admission->id, std::move(socket));
    connections_.emplace(connection->id(), connection.get());
    connection->start();
  }

  std::shared_ptr<Connection> make_connection(ConnectionTable::Id id, tcp::socket socket) {
    if (!is_tls())
      return std::make_shared<StreamConnection<beast::tcp_stream>>(id, *this, options_.limits, std::move(socket));
    const std::shared_ptr<SSL_CTX> settings = certificate_.context();
    SSL_CTX_up_ref(settings.get());
    net::ssl::context context(settings.get());  // owns one reference
    return std::make_shared<StreamConnection<TlsStream>>(id, *this, options_.limits, std::move(socket), context);
  }

  // The connection has left the table already.
  void close(ConnectionTable::Id id) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;
    Connection* connection = it->second;
    connection->close();
    for (auto& [path, batch] : batches_) {
      std::erase_if(batch.waiting, [&](const auto& waiting) { return waiting.get() == connection; });
    }
  }

  void on_request(std::shared_ptr<Connection> connection, HttpRequest request) override {
    const auto found = routes_.find(request.path);
    if (found == routes_.end()) return connection->respond(text_response(404, "not found\n"));
    const HttpRoute& route = found->second;
    if (route.kind == HandlerKind::kImmediate) return connection->respond(run(route.handler, request.query));
    if (!options_.refuse) return wait(std::move(connection), request.path);
    if (!table_.begin_review(connection->id())) return connection->respond(unavailable());
    net::post(workers_, [this, connection = std::move(connection), request = std::move(request)]() mutable {
      auto refusal = review(request);
      // The connection belongs to the I/O thread, which releases it.
      net::post(io_, [this, connection = std::move(connection), path = std::move(request.path),
                      refusal = std::move(refusal)]() mutable {
        if (!refusal) return wait(std::move(connection), path);
        table_.begin_response(connection->id());
        connection->respond(*std::move(refusal));
      });
    });
  }

  // On a worker.
  std::optional<HttpResponse> review(const HttpRequest& request) const {
    try {
      return options_.refuse(request.path, request.authorization);
    } catch (const std::exception& error) {  // the boundary of a request
      return text_response(500, std::string(error.what()) + "\n");
    }
  }

  // The requests of one shared route.
  struct Batch {
    Batch(net::io_context& io, const HttpHandler& route_handler) : handler(route_handler), timer(io) {}
    const HttpHandler& handler;
    std::vector<std::shared_ptr<Connection>> waiting;
    bool is_running = false;  // the handler answers earlier requests
    SteadyTime began{};       // the handler's last call
    net::steady_timer timer;
  };

  // A body that is being written, perhaps to many.
  struct BodyInFlight {
    std::weak_ptr<const HttpResponse> response;  // held by its readers
    size_t bytes;
    std::vector<ConnectionTable::Id> readers;
  };

  void wait(std::shared_ptr<Connection> connection, const std::string& path) {
    table_.begin_wait(connection->id());
    Batch& batch = batches_.try_emplace(path, io_, routes_.at(path).handler).first->second;
    batch.waiting.push_back(std::move(connection));
    run_if_due(batch);
  }

  void run_if_due(Batch& batch) {
    if (batch.is_running || batch.waiting.empty()) return;
    const SteadyTime now = SteadyTime::clock::now();
    const SteadyTime due = batch.began + options_.limits.response_period;
    std::erase_if(bodies_, [](const BodyInFlight& body) { return body.response.expired(); });
    if (!bodies_.empty() && now < due) {
      batch.timer.expires_at(due);
      return batch.timer.async_wait([this, &batch](error_code error) {
        if (!error) run_if_due(batch);
      });
    }
    batch.is_running = true;
    batch.began = now;
    net::post(workers_, [this, &batch, readers = std::exchange(batch.waiting, {})]() mutable {
      HttpResponse response = run(batch.handler, "");
      net::post(io_, [this, &batch, readers = std::move(readers), response = std::move(response)]() mutable {
        batch.is_running = false;
        respond(std::move(readers), std::make_shared<const HttpResponse>(std::move(response)));
        run_if_due(batch);
      });
    });
  }

  void respond(std::vector<std::shared_ptr<Connection>> readers, const SharedResponse& response) {
    BodyInFlight& body = bodies_.emplace_back(BodyInFlight{response, response->body.size(), {}});
    for (const auto& reader : readers) body.readers.push_back(reader->id());
    limit_bodies();
    for (const auto& reader : readers) {
      table_.begin_response(reader->id());
      reader->respond(response);
    }
  }

  // Closes the connections that still read the oldest bodies.
  void limit_bodies() {
    std::erase_if(bodies_, [](const BodyInFlight& body) { return body.response.expired(); });
    size_t bytes = 0;
    for (const BodyInFlight& body : bodies_) bytes += body.bytes;
    while (bytes > options_.limits.response_bytes && bodies_.size() > 2) {
      for (const ConnectionTable::Id id : bodies_.front().readers) {
        table_.remove(id);
        close(id);
      }
      bytes -= bodies_.front().bytes;
      bodies_.pop_front();
    }
  }

  void on_response_sent(ConnectionTable::Id id) override {
    table_.end_response(id);
    for (auto& [path, batch] : batches_) run_if_due(batch);
  }

  void on_end(ConnectionTable::Id id) override {
    table_.remove(id);
    connections_.erase(id);
  }

  const HttpRoutes routes_;
  const HttpServerOptions options_;
  // Of the I/O thread.
  TlsCertificate certificate_;
  ConnectionTable table_;
  std::unordered_map<ConnectionTable::Id, Connection*> connections_;

  // Destroyed before the above: their queues hold connections.
  net::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  net::steady_timer accept_timer_{io_};
  std::map<std::string, Batch> batches_;  // by path
  std::deque<BodyInFlight> bodies_;       // the oldest first
  net::thread_pool workers_{kWorkers};
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl, int port) : impl_(std::move(impl)), port_(port) {}

HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int port, const HttpRoutes& routes,
                                                      const HttpServerOptions& options) {
  auto impl = std::make_unique<Impl>(routes, options);
  if (const auto usable = impl->check_certificate(); !usable) return tl::make_unexpected(usable.error());
  int bound = impl->listen(address, port);
  if (bound < 0 && address == "::") bound = impl->listen("0.0.0.0", port);  // a kernel without IPv6
  if (bound < 0) {
    return fail(ExitCode::kUnavailable,
                fmt::format("cannot listen on {} for metrics: the port is in use or not allowed; choose another port",
                            endpoint(address, port)));
  }
  impl->start();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl), bound));
}

}  // namespace oarlock
