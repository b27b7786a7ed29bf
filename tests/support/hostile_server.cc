#include "tests/support/hostile_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <stdexcept>

#include "common/files.h"

namespace oarlock::test {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

Bio bio_of(const std::string& text) { return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free}; }
Certificate certificate_of(const std::string& pem) {
  return {PEM_read_bio_X509(bio_of(pem).get(), nullptr, nullptr, nullptr), X509_free};
}

SSL* session_of(SSL_CTX* tls, int fd) {
  if (tls == nullptr) return nullptr;
  SSL* ssl = SSL_new(tls);
  SSL_set_fd(ssl, fd);
  SSL_set_accept_state(ssl);
  return ssl;
}

// An address of socket functions at 127.0.0.1 or ::1.
struct LoopbackAddress {
  LoopbackAddress(HostileServer::Loopback loopback, int port) : v6(loopback == HostileServer::Loopback::kIpv6) {
    if (v6) {
      six.sin6_family = AF_INET6;
      six.sin6_addr = in6addr_loopback;
      six.sin6_port = htons(static_cast<uint16_t>(port));
    } else {
      four.sin_family = AF_INET;
      four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      four.sin_port = htons(static_cast<uint16_t>(port));
    }
    size = v6 ? sizeof six : sizeof four;
  }
  sockaddr* get() { return v6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four); }
  int port() const { return ntohs(v6 ? six.sin6_port : four.sin_port); }

  const bool v6;
  sockaddr_in four{};
  sockaddr_in6 six{};
  socklen_t size = 0;
};

}  // namespace

HostileServer::Connection::Connection(int fd, SSL_CTX* tls, const std::atomic<bool>& stopping)
    : fd_(fd), ssl_(session_of(tls, fd)), stopping_(stopping) {}

HostileServer::Connection::~Connection() {
  if (ssl_ != nullptr && sends_close_notify_) SSL_shutdown(ssl_.get());
  ERR_clear_error();
  ::close(fd_);
}

ssize_t HostileServer::Connection::result_of(int result) {
  if (result > 0) return result;
  const int error = SSL_get_error(ssl_.get(), result);
  ERR_clear_error();
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
  return error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

ssize_t HostileServer::Connection::put(const char* data, size_t size) {
  if (ssl_ == nullptr) return ::send(fd_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  return result_of(SSL_write(ssl_.get(), data, static_cast<int>(size)));
}

ssize_t HostileServer::Connection::get(char* data, size_t size) {
  if (ssl_ == nullptr) return ::recv(fd_, data, size, MSG_DONTWAIT);
  return result_of(SSL_read(ssl_.get(), data, static_cast<int>(size)));
}

bool HostileServer::Connection::handshake() {
  if (ssl_ == nullptr) return true;
  while (!stopping_) {
    if (result_of(SSL_do_handshake(ssl_.get())) > 0) return true;
    if (errno != EAGAIN) return false;
    wait(POLLIN);
  }
  return false;
}

std::string HostileServer::Connection::client() const {
  const Certificate shown(ssl_ == nullptr ? nullptr : SSL_get1_peer_certificate(ssl_.get()), X509_free);
  if (shown == nullptr) return "";
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(shown.get()), NID_commonName, name, sizeof name);
  return name;
}

bool HostileServer::Connection::write(const std::string& text) {
  return write_with(text, [this](const char* data, size_t size) { return put(data, size); });
}

bool HostileServer::Connection::flood_with_key_updates(size_t bytes) {
  BIO* const socket = SSL_get_wbio(ssl_.get());
  BIO_up_ref(socket);
  BIO* const memory = BIO_new(BIO_s_mem());
  SSL_set0_wbio(ssl_.get(), memory);
  while (BIO_ctrl_pending(memory) < bytes && SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED) == 1 &&
         SSL_do_handshake(ssl_.get()) == 1) {
  }
  std::string flood(BIO_ctrl_pending(memory), '\0');
  BIO_read(memory, flood.data(), static_cast<int>(flood.size()));
  SSL_set0_wbio(ssl_.get(), socket);  // releases `memory`
  return !flood.empty() && write_with(flood, [this](const char* data, size_t size) {
    return ::send(fd_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

template <typename Put>
bool HostileServer::Connection::write_with(const std::string& text, Put put) {
  size_t sent = 0;
  while (sent < text.size() && !stopping_) {
    const ssize_t n = put(text.data() + sent, text.size() - sent);
    if (n > 0) {
      sent += static_cast<size_t>(n);
      written += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      wait(POLLOUT);
    } else {
      return false;
    }
  }
  return sent == text.size();
}

void HostileServer::Connection::answer(int status, const std::string& body, const std::string& headers) {
  write("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
        headers + "\r\n" + body);
}

void HostileServer::Connection::reset() {
  sends_close_notify_ = false;
  const linger hard{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

void HostileServer::Connection::wait_for_close() {
  char bytes[256];
  while (!stopping_) {
    const ssize_t n = get(bytes, sizeof bytes);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return;
    wait(POLLIN);
  }
}

bool HostileServer::Connection::closed() const {
  char byte = 0;
  const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN);
}

bool HostileServer::Connection::read_request(Received& out, bool head_only) {
  out = {};
  while (out.head.find("\r\n\r\n") == std::string::npos) {
    if (!read_more(out.head)) return false;
  }
  const size_t end = out.head.find("\r\n\r\n") + 4;
  out.body = out.head.substr(end);
  out.head.resize(end);
  out.method = out.head.substr(0, out.head.find(' '));
  const size_t target = out.method.size() + 1;
  out.target = out.head.substr(target, out.head.find(' ', target) - target);
  out.client = client();
  if (head_only) return true;
  const size_t length_at = out.head.find("Content-Length:");
  const size_t length = length_at == std::string::npos ? 0 : std::stoul(out.head.substr(length_at + 15));
  while (out.body.size() < length) {
    if (!read_more(out.body)) return false;
  }
  return true;
}

void HostileServer::Connection::relay(Loopback loopback, int port) {
  LoopbackAddress address(loopback, port);
  const FileDescriptor upstream(::socket(address.v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(upstream.get(), address.get(), address.size) != 0) return;
  char bytes[65536];
  while (!stopping_) {
    const ssize_t from_client = get(bytes, sizeof bytes);
    if (from_client == 0 || (from_client < 0 && errno != EAGAIN)) return;
    if (from_client > 0 && ::send(upstream.get(), bytes, static_cast<size_t>(from_client), MSG_NOSIGNAL) < 0) return;
    const ssize_t from_server = ::recv(upstream.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (from_server == 0 || (from_server < 0 && errno != EAGAIN)) return;
    if (from_server > 0 && !write({bytes, static_cast<size_t>(from_server)})) return;
    if (from_client > 0 || from_server > 0) continue;
    pollfd ready[] = {{fd_, POLLIN, 0}, {upstream.get(), POLLIN, 0}};
    ::poll(ready, 2, 20);
  }
}

void HostileServer::Connection::wait(short events) {
  pollfd poll_fd{fd_, events, 0};
  ::poll(&poll_fd, 1, 20);
}

bool HostileServer::Connection::read_more(std::string& text) {
  char buffer[65536];
  while (!stopping_) {
    const ssize_t n = get(buffer, sizeof buffer);
    if (n > 0) {
      text.append(buffer, static_cast<size_t>(n));
      return true;
    }
    if (n == 0 || errno != EAGAIN) return false;
    wait(POLLIN);
  }
  return false;
}

HostileServer::HostileServer(Handler handler, const Options& options)
    : handler_(std::move(handler)), options_(options) {
  if (options_.identity) tls_ = context_for(*options_.identity);
  const bool v6 = options_.loopback == Loopback::kIpv6;
  LoopbackAddress address(options_.loopback, 0);
  fd_ = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(fd_, address.get(), address.size) != 0 || ::listen(fd_, 64) != 0 ||
      ::getsockname(fd_, address.get(), &address.size) != 0) {
    throw std::runtime_error(std::string("hostile server: ") + std::strerror(errno));
  }
  port_ = address.port();
  acceptor_ = std::thread([this] { accept_loop(); });
}

HostileServer::~HostileServer() {
  stopping_ = true;
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  ::close(fd_);
}

std::shared_ptr<SSL_CTX> HostileServer::context_for(const Identity& identity) const {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SslFree());
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(bio_of(identity.key).get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  if (SSL_CTX_use_certificate(context.get(), certificate_of(identity.certificate).get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    throw std::runtime_error("hostile server: the certificate cannot be used");
  }
  if (!options_.client_authority.empty()) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), certificate_of(options_.client_authority).get());
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);  // as a kube-apiserver: it may show none
  }
  return context;
}

void HostileServer::present(const Identity& identity) {
  std::shared_ptr<SSL_CTX> context = context_for(identity);
  const std::lock_guard lock(mutex_);
  tls_ = std::move(context);
}

std::string HostileServer::url() const {
  return std::string(options_.identity ? "https" : "http") +
         (options_.loopback == Loopback::kIpv6 ? "://[::1]:" : "://127.0.0.1:") + std::to_string(port_);
}

std::vector<HostileServer::Received> HostileServer::received() const {
  const std::lock_guard lock(mutex_);
  return received_;
}

void HostileServer::accept_loop() {
  while (!stopping_) {
    pollfd poll_fd{fd_, POLLIN, 0};
    if (::poll(&poll_fd, 1, 20) <= 0) continue;
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) continue;
    const int number = connections_++;
    ++open_;
    threads_.emplace_back([this, fd, number] {
      serve(fd, number);
      --open_;
    });
  }
}

void HostileServer::serve(int fd, int number) {
  sigset_t broken_pipe;  // OpenSSL writes without MSG_NOSIGNAL
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  std::shared_ptr<SSL_CTX> tls;
  {
    const std::lock_guard lock(mutex_);
    tls = tls_;
  }
  Connection connection(fd, tls.get(), stopping_);
  if (!connection.handshake()) return;
  Received request;
  while (connection.read_request(request, options_.head_only)) {
    request.connection = number;
    {
      const std::lock_guard lock(mutex_);
      received_.push_back(request);
    }
    if (!handler_(connection, request)) return;
  }
}

}  // namespace oarlock::test
