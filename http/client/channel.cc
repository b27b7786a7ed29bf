#include "http/client/channel.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "http/client/address.h"

namespace oarlock::http {
namespace {

namespace net = boost::asio;
using Clock = std::chrono::steady_clock;

}  // namespace

// One lookup. Its thread and the calls that wait for it share it.
struct Resolver::Pending {
  const Clock::time_point started = Clock::now();
  std::mutex mutex;
  std::condition_variable_any done;
  std::optional<Endpoints> found;

  bool is_done() {
    const std::lock_guard lock(mutex);
    return found.has_value();
  }
};

Resolver::Resolver(std::string host, std::string port, Lookup lookup)
    : host_(std::move(host)), port_(std::move(port)), lookup_(std::move(lookup)) {}

Resolver::Endpoints Resolver::lookup_with_system(const std::string& host, const std::string& port) {
  net::io_context io;
  boost::system::error_code error;
  const auto found = net::ip::tcp::resolver(io).resolve(host, port, net::ip::resolver_base::numeric_service, error);
  return {found.begin(), found.end()};
}

TransportResult<Resolver::Endpoints> Resolver::resolve(const CallLimits& limits) {
  boost::system::error_code error;
  if (const auto address = net::ip::make_address(host_, error); !error)
    return Endpoints{{address, static_cast<unsigned short>(std::stoi(port_))}};
  ASSIGN_OR_RETURN(const std::shared_ptr<Pending> pending, pending_lookup());
  Pending& lookup = *pending;
  std::unique_lock lock(lookup.mutex);
  lookup.done.wait_until(lock, limits.cancel(), limits.next(), [&] { return lookup.found.has_value(); });
  if (!lookup.found) {
    RETURN_IF_ERROR(limits.check());
  }
  if (!lookup.found || lookup.found->empty())
    return failed(TransportErrorKind::kConnect, "the host name cannot be resolved");
  return *lookup.found;
}

TransportResult<std::shared_ptr<Resolver::Pending>> Resolver::pending_lookup() {
  const std::lock_guard lock(mutex_);
  if (pending_ != nullptr && !pending_->is_done() && Clock::now() - pending_->started < kSharedLookup) return pending_;
  const auto started = std::make_shared<Pending>();
  try {
    std::thread([started, lookup = lookup_, host = host_, port = port_] {
      Endpoints found = lookup(host, port);
      const std::lock_guard done(started->mutex);
      started->found = std::move(found);
      started->done.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    return failed(TransportErrorKind::kConnect,
                  std::string("cannot start a thread to resolve the host name: ") + error.what());
  }
  pending_ = started;
  return started;
}

// ---- Byte streams ------------------------------------------------------------------------------------------------

namespace ssl = boost::asio::ssl;

TcpChannel::~TcpChannel() { on_cancel_.reset(); }

void TcpChannel::begin_call(CallLimits& limits) {
  limits_ = &limits;
  left_between_calls_ = kMaxBytesBetweenCalls;
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
    return failed(TransportErrorKind::kConnect, "no connection: the address does not respond");
  return failed(TransportErrorKind::kConnect, fmt::format("no connection: {}", error.message()));
}

ErrorCode TcpChannel::connect_to(const Resolver::Endpoint& endpoint, CallLimits::Time until) {
  ErrorCode error;
  FileDescriptor fd(::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));  // Asio sets no CLOEXEC
  if (!fd.open()) return {errno, boost::system::system_category()};
  stream_.socket().assign(endpoint.protocol(), fd.get(), error);
  if (error) return error;
  fd.release();
  stream_.socket().non_blocking(true, error);  // for operations that must not wait
  stream_.socket().set_option(net::ip::tcp::no_delay(true), error);
  error = {};
  run([&](auto done) { stream_.async_connect(endpoint, std::move(done)); }, error, until);
  if (error) stream_.close();
  return error;
}

size_t TcpChannel::read(net::mutable_buffer buffer, ErrorCode& error) {
  if (limits_ == nullptr) {
    if (left_between_calls_ == 0) {
      error = kReadLimitReached;
      return 0;
    }
    const size_t size = stream_.socket().read_some(net::buffer(buffer, left_between_calls_), error);
    left_between_calls_ -= size;
    return size;
  }
  return run([&](auto done) { stream_.async_read_some(buffer, std::move(done)); }, error);
}

size_t TcpChannel::write(net::const_buffer buffer, ErrorCode& error) {
  if (limits_ == nullptr) {
    const size_t size = stream_.socket().write_some(buffer, error);
    // A part of a TLS record may have been written, so that nothing else can be written later.
    if (error == net::error::would_block) error = net::error::no_buffer_space;
    return size;
  }
  return run([&](auto done) { stream_.async_write_some(buffer, std::move(done)); }, error);
}

template <typename Start>
size_t TcpChannel::run(Start start, ErrorCode& error, CallLimits::Time until) {
  if (!limits_->check()) {
    error = boost::beast::error::timeout;  // stands for any limit; the caller checks the limits again
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
  while (!is_done) io_.run_one();  // NOLINT(bugprone-infinite-loop): the handler above sets it
  if (!error) limits_->restart_idle();
  return transferred;
}

namespace {

// Asio's wrapper takes over one reference to the context.
ssl::context share(SSL_CTX* context) {
  SSL_CTX_up_ref(context);
  return ssl::context(context);
}

// Makes OpenSSL compare the name while it verifies the certificate. Asio's host_name_verification is not used: in Boost
// 1.74 it accepts the common name of a certificate that has no DNS name. Returns false if the name is refused; OpenSSL
// would then accept any certificate.
[[nodiscard]] bool set_expected_name(SSL* session, const std::string& name) {
  X509_VERIFY_PARAM* param = SSL_get0_param(session);
  X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  if (is_ip_address(name)) return X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str()) == 1;
  if (!is_verifiable_host_name(name)) return false;
  // SSL_set_tlsext_host_name without the C cast of that macro.
  SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(name.c_str()));
  return X509_VERIFY_PARAM_set1_host(param, name.c_str(), name.size()) == 1;
}

std::string handshake_error(SSL* session, const std::string& peer, const ErrorCode& error) {
  const long verified = SSL_get_verify_result(session);
  switch (verified) {
    case X509_V_OK: {
      const bool is_closed = error == net::error::eof || error == ssl::error::stream_truncated;
      return fmt::format("TLS handshake failed: {}; the {} may reject the client certificate, or may not use TLS",
                         is_closed ? fmt::format("connection closed by the {}", peer) : error.message(), peer);
    }
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return fmt::format("the {}'s certificate is for another host name", peer);
    default:
      return fmt::format("the {}'s certificate is not accepted: {}", peer, X509_verify_cert_error_string(verified));
  }
}

}  // namespace

TlsChannel::TlsChannel(std::unique_ptr<Channel> next, SSL_CTX* context)
    : next_(std::move(next)), stream_([&]() -> ssl::stream<Channel&> {
        ssl::context shared = share(context);
        return {*next_, shared};
      }()) {}

TransportResult<void> TlsChannel::handshake(const std::string& name, const std::string& peer,
                                            const CallLimits& limits) {
  if (!set_expected_name(stream_.native_handle(), name)) {
    return failed(TransportErrorKind::kTls,
                  fmt::format("'{}' is not a host name that a certificate of the {} can have", printable(name), peer));
  }
  ErrorCode error;
  stream_.handshake(ssl::stream_base::client, error);
  if (!error) return {};
  if (const auto good = limits.check(); !good) return good;
  return failed(TransportErrorKind::kTls, handshake_error(stream_.native_handle(), peer, error));
}

void TlsChannel::close() {
  ErrorCode ignored;
  next_->limit_reads(kMaxBytesWithoutData);
  stream_.shutdown(ignored);  // sends close_notify and does not wait for that of the peer
  next_->close();
  ERR_clear_error();
}

}  // namespace oarlock::http
