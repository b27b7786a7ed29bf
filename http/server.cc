#include "http/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <span>
#include <thread>
#include <unordered_map>

#include "common/clock.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "http/connection.h"
#include "http/connection_table.h"
#include "http/request_head.h"

namespace oarlock {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

// Connections that wait to be accepted. Beyond it, the kernel drops a client's SYN, which is sent again only after a
// second; a thousand clients may connect at the same moment.
constexpr int kBacklog = 2048;
// Kernel buffers per connection. By default, the kernel would buffer several MiB for a peer that does not read.
constexpr int kSendBuffer = 64 << 10;
constexpr int kReceiveBuffer = 16 << 10;
constexpr auto kAcceptPause = std::chrono::milliseconds(50);

HttpResponse run(const HttpHandler& handler, const std::string& query) {
  try {
    return handler(query);
  } catch (const std::exception& error) {  // the boundary of a request
    return text_response(500, std::string(error.what()) + "\n");
  }
}

HttpResponse unavailable() { return text_response(503, "too many requests at the same time; try again\n"); }

SteadyTime now() { return SteadyTime::clock::now(); }

template <typename Socket>
void close_on_exec(Socket& socket) {
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

}  // namespace

class HttpServer::Impl final : public ConnectionOwner {
 public:
  Impl(HttpRoutes routes, HttpServerOptions options)
      : routes_(std::move(routes)),
        options_(std::move(options)),
        certificate_(options_.certificate, options_.on_unusable_certificate),
        table_(options_.limits) {
    const auto needs_worker = [](const auto& route) { return route.second.kind == HandlerKind::kShared; };
    if (std::ranges::any_of(routes_, needs_worker)) workers_.emplace(kWorkers);
  }

  ~Impl() {
    net::post(io_, [this] {
      for (const auto& [id, connection] : connections_) connection->close();
      io_.stop();
    });
    if (thread_.joinable()) thread_.join();
    if (!workers_) return;
    workers_->stop();
    workers_->join();
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
    net::post(io_, [this] { accept(); });
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
    if (endpoint.address().is_v6()) set(net::ip::v6_only(false));  // "::" includes IPv4, whatever the sysctl is
    // Accepted sockets inherit these. The last part of a response does not wait for an acknowledgement.
    set(tcp::no_delay(true));
    set(net::socket_base::send_buffer_size(kSendBuffer));
    set(net::socket_base::receive_buffer_size(kReceiveBuffer));
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(kBacklog, error);
    const int port = error ? -1 : acceptor_.local_endpoint(error).port();
    if (!error) return port;
    acceptor_.close(error);
    return -1;
  }

  // An exception, such as std::bad_alloc, closes the connection whose operation threw it.
  void run_io() {
    constexpr int kLowest = 19;
    if (options_.limits.has_lowest_priority) ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowest);
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

  void accept_later(std::chrono::nanoseconds delay) {
    accept_timer_.expires_after(delay);
    accept_timer_.async_wait([this](error_code) { accept(); });
  }

  // The process has run out of descriptors (accept(2) then fails even if no connection is pending), or the kernel out
  // of memory. Each retry follows the closing of a connection or a pause, so that repeated errors cannot use up the
  // CPU.
  void recover_from(error_code error) {
    const auto again = [this](error_code) { accept(); };
    pollfd pending{.fd = acceptor_.native_handle(), .events = POLLIN, .revents = 0};
    if (::poll(&pending, 1, 0) == 0) return acceptor_.async_wait(tcp::acceptor::wait_read, again);
    if (error == net::error::no_descriptors) {
      if (const auto replaced = table_.replace_one(now())) {
        close(*replaced);
        return accept();
      }
    }
    accept_later(kAcceptPause);
  }

  void admit(tcp::socket socket) {
    error_code error;
    close_on_exec(socket);
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // the peer has closed it already
    const auto admission = table_.admit(peer.address().to_string(), now());
    if (!admission) return;
    if (admission->replaced) close(*admission->replaced);
    const auto connection = open_connection(admission->id, std::move(socket));
    connections_.emplace(connection->id(), connection.get());
    connection->start();
  }

  std::shared_ptr<Connection> open_connection(ConnectionTable::Id id, tcp::socket socket) {
    const auto make = is_tls() ? make_tls_connection : make_connection;
    return make(id, *this, options_.limits, std::move(socket));
  }

  std::shared_ptr<SSL_CTX> on_client_hello(ConnectionTable::Id id) override {
    const auto admission = table_.begin_session(id, now());
    if (!admission) return nullptr;
    if (admission->replaced) close(*admission->replaced);
    return certificate_.context();
  }

  // REQUIRES: the connection is no longer in the table.
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
    if (request.is_post != (route.kind == HandlerKind::kPost))
      return connection->respond(text_response(405, "this path does not support this method\n"));
    if (request.is_post && request.authorization != "Bearer " + options_.post_token)
      return connection->respond(text_response(401, "the bearer token is missing or wrong\n"));
    if (request.is_post) return connection->respond(run(route.handler, request.body));
    if (route.kind == HandlerKind::kImmediate) return connection->respond(run(route.handler, request.query));
    if (!options_.refuse) return wait(std::move(connection), request.path);
    if (!table_.begin_review(connection->id(), now())) return connection->respond(unavailable());
    const bool is_known = table_.is_authorized(connection->id(), now());
    net::post(*workers_, [this, is_known, connection = std::move(connection), request = std::move(request)]() mutable {
      auto refusal = review(request, is_known);
      // The I/O thread owns the connection and releases it.
      net::post(io_, [this, connection = std::move(connection), path = std::move(request.path),
                      refusal = std::move(refusal)]() mutable {
        if (!refusal) {
          table_.prefer(connection->id(), now());
          return wait(std::move(connection), path);
        }
        table_.begin_response(connection->id(), now());
        connection->respond(*std::move(refusal));
      });
    });
  }

  // Runs on a worker thread.
  std::optional<HttpResponse> review(const HttpRequest& request, bool is_known_address) const {
    try {
      return options_.refuse(request.path, request.authorization, is_known_address);
    } catch (const std::exception& error) {  // the boundary of a request
      return text_response(500, std::string(error.what()) + "\n");
    }
  }

  // The requests of one shared route.
  struct Batch {
    Batch(net::io_context& io, const HttpHandler& route_handler) : handler(route_handler), timer(io) {}
    const HttpHandler& handler;
    std::vector<std::shared_ptr<Connection>> waiting;
    bool is_running = false;  // the handler is computing the response to earlier requests
    SteadyTime ended{};       // end of the last call of the handler
    size_t bytes = 0;         // size of its body, and thus of the next one, roughly
    net::steady_timer timer;
  };

  // A body that is being written to one or more connections.
  struct BodyInFlight {
    std::weak_ptr<const HttpResponse> response;  // owned by the connections that write it
    size_t bytes;
    std::vector<ConnectionTable::Id> readers;
  };

  void wait(std::shared_ptr<Connection> connection, const std::string& path) {
    table_.begin_wait(connection->id(), now());
    Batch& batch = batches_.try_emplace(path, io_, routes_.at(path).handler).first->second;
    batch.waiting.push_back(std::move(connection));
    run_if_due(batch);
  }

  void run_if_due(Batch& batch) {
    if (batch.is_running || batch.waiting.empty()) return;
    const std::chrono::nanoseconds period = options_.limits.response_period;
    const auto left = batch.ended + period - now();
    if (left.count() > 0) return run_later(batch, left);
    if (!make_room(batch)) return run_later(batch, period);
    batch.is_running = true;
    net::post(*workers_, [this, &batch, readers = std::exchange(batch.waiting, {})]() mutable {
      HttpResponse response = run(batch.handler, "");
      net::post(io_, [this, &batch, readers = std::move(readers), response = std::move(response)]() mutable {
        batch.is_running = false;
        batch.ended = now();
        batch.bytes = response.body.size();
        respond(readers, std::make_shared<const HttpResponse>(std::move(response)));
        run_if_due(batch);
      });
    });
  }

  void run_later(Batch& batch, std::chrono::nanoseconds delay) {
    batch.timer.expires_after(delay);
    batch.timer.async_wait([this, &batch](error_code error) {
      if (!error) run_if_due(batch);
    });
  }

  void respond(const std::vector<std::shared_ptr<Connection>>& readers, const SharedResponse& response) {
    BodyInFlight& body = bodies_.emplace_back(BodyInFlight{response, response->body.size(), {}});
    for (const auto& reader : readers) body.readers.push_back(reader->id());
    for (const auto& reader : readers) {
      table_.begin_response(reader->id(), now());
      reader->respond(response);
    }
  }

  // Makes room for the next body of this batch: closes the readers of the bodies whose peers have most connections,
  // among equals those without progress for the longest time. Returns false, and leaves the rest, if these peers all
  // have fewer connections than the peers that wait. One body is exempt, so that bodies of any size can be served.
  bool make_room(const Batch& batch) {
    std::erase_if(bodies_, [](const BodyInFlight& body) { return body.response.expired(); });
    size_t bytes = batch.bytes;
    for (const BodyInFlight& body : bodies_) bytes += body.bytes;
    const size_t weight_of_waiting = weight(batch.waiting, [](const auto& connection) { return connection->id(); });
    while (bytes > options_.limits.response_bytes && bodies_.size() > 1) {
      const auto weight_of_body = [this](const BodyInFlight& body) { return weight(body.readers, std::identity()); };
      const auto rank = [&](const BodyInFlight& body) {
        return std::pair(weight_of_body(body), -last_progress(body).time_since_epoch());
      };
      const auto heaviest = std::ranges::max_element(bodies_, {}, rank);
      if (weight_of_body(*heaviest) < weight_of_waiting) return false;
      for (const ConnectionTable::Id id : heaviest->readers) {
        table_.remove(id);
        close(id);
      }
      bytes -= heaviest->bytes;
      bodies_.erase(heaviest);
    }
    return true;
  }

  // Returns the smallest weight of these connections.
  template <typename Connections, typename IdOf>
  size_t weight(const Connections& connections, IdOf id_of) const {
    size_t smallest = std::numeric_limits<size_t>::max();
    for (const auto& connection : connections)
      smallest = std::min(smallest, table_.weight(id_of(connection), now()).value_or(smallest));
    return smallest;
  }

  // Returns the last progress of the reader that made it last.
  SteadyTime last_progress(const BodyInFlight& body) const {
    SteadyTime last{};
    for (const ConnectionTable::Id id : body.readers) last = std::max(last, table_.last_progress(id).value_or(last));
    return last;
  }

  void on_progress(ConnectionTable::Id id) override { table_.record_progress(id, now()); }

  void on_response_sent(ConnectionTable::Id id) override {
    table_.end_response(id, now());
    for (BodyInFlight& body : bodies_) std::erase(body.readers, id);
  }

  void on_end(ConnectionTable::Id id) override {
    table_.remove(id);
    connections_.erase(id);
  }

  std::span<char> discard_buffer() override { return discarded_; }

  const HttpRoutes routes_;
  const HttpServerOptions options_;
  // Used by the I/O thread only.
  TlsCertificate certificate_;
  ConnectionTable table_;
  std::unordered_map<ConnectionTable::Id, Connection*> connections_;
  std::array<char, 16 << 10> discarded_;

  // These are destroyed before the members above, because their queues hold connections.
  net::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  net::steady_timer accept_timer_{io_};
  std::map<std::string, Batch> batches_;     // by path
  std::deque<BodyInFlight> bodies_;          // the oldest first
  std::optional<net::thread_pool> workers_;  // absent if no route is kShared
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl, int port) : impl_(std::move(impl)), port_(port) {}

HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int port, const HttpRoutes& routes,
                                                      const HttpServerOptions& options) {
  auto impl = std::make_unique<Impl>(routes, options);
  RETURN_IF_ERROR(impl->check_certificate());
  int bound = impl->listen(address, port);
  if (bound < 0 && address == "::") bound = impl->listen("0.0.0.0", port);  // a kernel without IPv6
  if (bound < 0) {
    return fail(ExitCode::kUnavailable,
                fmt::format("cannot listen on {}: the port is in use or not allowed; choose another port",
                            endpoint(address, port)));
  }
  impl->start();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl), bound));
}

}  // namespace oarlock
