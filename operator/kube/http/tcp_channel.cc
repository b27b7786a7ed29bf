#include "operator/kube/http/tcp_channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>

#include "common/file_descriptor.h"

namespace oarlock::kube {

namespace net = boost::asio;
using Kind = TransportError::Kind;

TcpChannel::~TcpChannel() { on_cancel_.reset(); }

void TcpChannel::begin_call(CallLimits& limits) {
  limits_ = &limits;
  if (limits.cancel().stop_possible()) on_cancel_.emplace(limits.cancel(), Cancel{this});
}

void TcpChannel::end_call() {
  on_cancel_.reset();
  limits_ = nullptr;
}

// Runs in the thread that requests the stop.
void TcpChannel::Cancel::operator()() const {
  net::post(channel->io_, [channel = channel] { channel->stream_.cancel(); });
}

template <typename Start>
size_t TcpChannel::run(Start start, ErrorCode& error, CallLimits::Time until) {
  if (!limits_->check()) {
    error = boost::beast::error::timeout;  // of whatever kind: the caller checks the limits again
    return 0;
  }
  stream_.expires_at(std::min(limits_->next(), until));
  bool is_done = false;
  size_t transferred = 0;
  start([&](const ErrorCode& result, size_t bytes = 0) {
    error = result;
    transferred = bytes;
    is_done = true;
  });
  io_.restart();
  while (!is_done) io_.run_one();
  if (!error) limits_->progress();
  return transferred;
}

size_t TcpChannel::read(net::mutable_buffer buffer, ErrorCode& error) {
  if (limits_ == nullptr) return stream_.socket().read_some(buffer, error);
  return run([&](auto done) { stream_.async_read_some(buffer, std::move(done)); }, error);
}

size_t TcpChannel::write(net::const_buffer buffer, ErrorCode& error) {
  if (limits_ == nullptr) return stream_.socket().write_some(buffer, error);
  return run([&](auto done) { stream_.async_write_some(buffer, std::move(done)); }, error);
}

ErrorCode TcpChannel::connect_to(const Resolver::Endpoint& endpoint, CallLimits::Time until) {
  ErrorCode error;
  FileDescriptor fd(::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));  // Asio sets no CLOEXEC
  if (!fd.open()) return {errno, boost::system::system_category()};
  stream_.socket().assign(endpoint.protocol(), fd.get(), error);
  if (error) return error;
  fd.release();
  stream_.socket().non_blocking(true, error);  // for operations that may not wait
  stream_.socket().set_option(net::ip::tcp::no_delay(true), error);
  error = {};
  run([&](auto done) { stream_.async_connect(endpoint, std::move(done)); }, error, until);
  if (error) stream_.close();
  return error;
}

TransportResult<void> TcpChannel::connect(const Resolver::Endpoints& endpoints) {
  ErrorCode error;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    const auto now = std::chrono::steady_clock::now();
    const auto share = (limits_->end() - now) / static_cast<long>(endpoints.size() - i);
    error = connect_to(endpoints[i], now + share);
    if (!error) return {};
    if (const auto good = limits_->check(); !good) return good;
  }
  if (error == boost::beast::error::timeout)
    return failed(Kind::kConnect, "no connection: the address does not answer");
  return failed(Kind::kConnect, fmt::format("no connection: {}", error.message()));
}

}  // namespace oarlock::kube
