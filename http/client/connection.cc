#include "http/client/connection.h"

#include <boost/asio/error.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::http {
namespace {

namespace net = boost::asio;

// Lets operations on the channel wait, within the limits of a call, during its lifetime.
class CallOnChannel {
 public:
  CallOnChannel(TcpChannel& channel, CallLimits& limits) : channel_(channel) { channel_.begin_call(limits); }
  ~CallOnChannel() { channel_.end_call(); }
  CallOnChannel(const CallOnChannel&) = delete;
  CallOnChannel& operator=(const CallOnChannel&) = delete;

 private:
  TcpChannel& channel_;
};

}  // namespace

Connection::Connection(std::shared_ptr<SSL_CTX> server_context)
    : server_context_(std::move(server_context)),
      channel_(std::make_unique<TcpChannel>()),
      tcp_(static_cast<TcpChannel*>(channel_.get())) {}

Connection::~Connection() {
  if (is_open_) channel_->close();
}

TransportResult<std::unique_ptr<Connection>> Connection::open(const Route& route, Resolver& resolver,
                                                              const TlsSessions& tls, CallLimits& limits) {
  ASSIGN_OR_RETURN(const Resolver::Endpoints endpoints, resolver.resolve(limits));
  limits.restart_idle();
  std::unique_ptr<Connection> connection(new Connection(tls.server));
  const CallOnChannel call(*connection->tcp_, limits);
  const auto tls_to_proxy = [&]() -> TransportResult<void> {
    if (!route.proxy || !route.proxy->tls) return {};
    return connection->start_tls(tls.proxy.get(), route.proxy->host, "proxy", limits);
  };
  const auto tunnel = [&]() -> TransportResult<void> {
    if (!route.proxy || !route.server.tls) return {};
    return open_tunnel(*connection->channel_,
                       {.server = endpoint(route.server.host, std::stoi(route.server.port)),
                        .user_agent = route.user_agent,
                        .proxy_authorization = route.proxy->authorization()},
                       limits);
  };
  const auto tls_to_server = [&]() -> TransportResult<void> {
    if (!route.server.tls) return {};
    return connection->start_tls(tls.server.get(), route.certificate_name, "server", limits);
  };
  RETURN_IF_ERROR(connection->tcp_->connect(endpoints).and_then(tls_to_proxy).and_then(tunnel).and_then(tls_to_server));
  connection->is_open_ = true;
  return connection;
}

TransportResult<void> Connection::start_tls(SSL_CTX* context, const std::string& name, const std::string& peer,
                                            const CallLimits& limits) {
  auto channel = std::make_unique<TlsChannel>(std::move(channel_), context);
  TlsChannel& started = *channel;
  channel_ = std::move(channel);
  return started.handshake(name, peer, limits);
}

tl::expected<ReceivedResponse, ReadError> Connection::exchange(const std::string& request, ByteSink* sink,
                                                               CallLimits& limits) {
  const CallOnChannel call(*tcp_, limits);
  is_open_ = false;  // until the response is complete
  ErrorCode error;
  net::write(*channel_, net::buffer(request), error);
  auto received = read_response(*channel_, sink, limits);
  if (error) {
    if (!received) received.error().error = channel_error(error, limits);
    if (received) received->is_reusable = false;
  }
  // A cancellation that arrives too late for this call must not cancel the next one.
  if (received && limits.cancel().stop_requested()) received->is_reusable = false;
  is_open_ = received && received->is_reusable;
  return received;
}

bool Connection::is_reusable() {
  char byte = 0;
  ErrorCode error;
  channel_->read_some(net::buffer(&byte, 1), error);
  is_open_ = error == net::error::would_block;
  return is_open_;
}

std::unique_ptr<Connection> ConnectionPool::take() {
  close_expired();
  for (;;) {
    std::unique_ptr<Connection> last;
    {
      const std::lock_guard lock(mutex_);
      if (idle_.empty()) return nullptr;
      last = std::move(idle_.back().connection);
      idle_.pop_back();
    }
    if (last->is_reusable()) return last;
  }
}

void ConnectionPool::put(std::unique_ptr<Connection> connection) {
  const auto now = std::chrono::steady_clock::now();
  Connections expired;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  expired = remove_expired(now);
  idle_.push_back({std::move(connection), now});
}

void ConnectionPool::clear() {
  Connections all;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  all.swap(idle_);
}

size_t ConnectionPool::close_expired() {
  Connections expired;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  expired = remove_expired(std::chrono::steady_clock::now());
  return expired.size();
}

ConnectionPool::Connections ConnectionPool::remove_expired(Time now) {
  Connections expired;
  while (!idle_.empty() && now - idle_.front().since > max_idle_time_) {
    expired.push_back(std::move(idle_.front()));
    idle_.pop_front();
  }
  return expired;
}

}  // namespace oarlock::http
