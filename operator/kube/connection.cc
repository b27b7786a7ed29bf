#include "operator/kube/connection.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "operator/kube/dial.h"
#include "operator/kube/socket_bio.h"

namespace oarlock::kube {
namespace {

using Kind = TransportError::Kind;

SSL* new_session(SSL_CTX* context, int fd) {
  if (context == nullptr) return nullptr;
  SSL* ssl = SSL_new(context);
  if (ssl == nullptr) throw std::bad_alloc();
  BIO* bio = new_socket_bio(fd);
  SSL_set_bio(ssl, bio, bio);  // takes it over
  SSL_set_connect_state(ssl);
  return ssl;
}

// Whom the certificate must name; OpenSSL checks it while it verifies.
void expect(SSL* ssl, const std::string& name) {
  if (is_ip_address(name)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str());
  } else {
    // As SSL_set_tlsext_host_name, a macro with a C cast in it.
    SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(name.c_str()));
    SSL_set1_host(ssl, name.c_str());
  }
}

// What OpenSSL's error queue says.
std::string reason() {
  const unsigned long code = ERR_peek_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  std::string out = text == nullptr ? "the server has ended it" : text;
  ERR_clear_error();
  return out;
}

std::string why_no_handshake(const SSL* ssl, const std::string& reason) {
  const long verdict = SSL_get_verify_result(ssl);
  switch (verdict) {
    case X509_V_OK:
      return fmt::format("TLS handshake failed: {}; the server may refuse the client certificate, or speaks no TLS",
                         reason);
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "the server's certificate is for another host name";
    default:
      return fmt::format("the server's certificate is not accepted: {}", X509_verify_cert_error_string(verdict));
  }
}

}  // namespace

Connection::Connection(FileDescriptor socket, std::shared_ptr<SSL_CTX> context)
    : socket_(std::move(socket)), context_(std::move(context)), ssl_(new_session(context_.get(), socket_.get())) {}

Connection::~Connection() {
  if (ssl_ != nullptr && !broken_) SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

TransportResult<std::unique_ptr<Connection>> Connection::open(const ServerAddress& server, const TlsUse& tls,
                                                              Waiter& waiter) {
  TransportResult<FileDescriptor> socket = dial(server, waiter);
  if (!socket) return tl::make_unexpected(socket.error());
  std::unique_ptr<Connection> connection(new Connection(std::move(*socket), tls.context));
  if (const auto good = connection->shake_hands(tls.name, waiter); !good) return tl::make_unexpected(good.error());
  return connection;
}

TransportResult<void> Connection::shake_hands(const std::string& name, Waiter& waiter) {
  if (ssl_ == nullptr) return {};
  expect(ssl_.get(), name);
  const auto done = tls([&] { return SSL_do_handshake(ssl_.get()); }, waiter);
  if (done && *done > 0) return {};
  if (done) return failed(Kind::kTls, why_no_handshake(ssl_.get(), "the server has ended it"));
  if (done.error().kind != Kind::kBroken) return tl::make_unexpected(done.error());
  return failed(Kind::kTls, why_no_handshake(ssl_.get(), done.error().message));
}

template <typename Call>
TransportResult<size_t> Connection::tls(Call call, Waiter& waiter) {
  for (;;) {
    ERR_clear_error();
    errno = 0;
    const int n = call();
    if (n > 0) return static_cast<size_t>(n);
    const int error = SSL_get_error(ssl_.get(), n);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      broken_ = true;
      return failed(Kind::kBroken, errno != 0 && ERR_peek_error() == 0 ? std::strerror(errno) : reason());
    }
    const auto ready = waiter.wait(socket_.get(), error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT);
    if (!ready) {
      broken_ = true;
      return tl::make_unexpected(ready.error());
    }
  }
}

template <typename Call>
TransportResult<size_t> Connection::plain(Call call, short events, Waiter& waiter) {
  for (;;) {
    const ssize_t n = call();
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EAGAIN && errno != EINTR) return failed(Kind::kBroken, std::strerror(errno));
    if (const auto ready = waiter.wait(socket_.get(), events); !ready) return tl::make_unexpected(ready.error());
  }
}

TransportResult<void> Connection::write(std::string_view bytes, Waiter& waiter) {
  while (!bytes.empty()) {
    const auto written =
        ssl_ == nullptr
            ? plain([&] { return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }, POLLOUT, waiter)
            : tls([&] { return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())); }, waiter);
    if (!written) return tl::make_unexpected(written.error());
    if (*written == 0) return failed(Kind::kBroken, "the server has ended it");
    bytes.remove_prefix(*written);
    waiter.progress();
  }
  return {};
}

TransportResult<size_t> Connection::read(std::span<char> buffer, Waiter& waiter) {
  // A server that always has a few more bytes must not get around the limits.
  if (const auto good = waiter.check(); !good) return tl::make_unexpected(good.error());
  // Asking the socket before it has something would be a system call for nothing.
  if (ssl_ == nullptr || SSL_has_pending(ssl_.get()) == 0) {
    if (const auto ready = waiter.wait(socket_.get(), POLLIN); !ready) return tl::make_unexpected(ready.error());
  }
  const auto n =
      ssl_ == nullptr
          ? plain([&] { return ::recv(socket_.get(), buffer.data(), buffer.size(), 0); }, POLLIN, waiter)
          : tls([&] { return SSL_read(ssl_.get(), buffer.data(), static_cast<int>(buffer.size())); }, waiter);
  if (!n) return n;
  received_ += *n;
  waiter.progress();
  return n;
}

bool Connection::quiet() const {
  if (ssl_ != nullptr && SSL_has_pending(ssl_.get()) != 0) return false;
  pollfd watched{socket_.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) == 0;
}

}  // namespace oarlock::kube
