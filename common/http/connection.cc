#include "common/http/connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <type_traits>

namespace oarlock {
namespace {

// For keys that are encrypted. Without it, OpenSSL would prompt for a pass phrase on the terminal, and wait.
int no_pass_phrase(char*, int, int, void*) { return 0; }

std::shared_ptr<SSL_CTX> read_context(const std::string& file) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // A connection serves one request, and clients rarely return: neither renegotiation nor resumption is needed.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_default_passwd_cb(context.get(), no_pass_phrase);
  const bool is_usable = SSL_CTX_use_certificate_chain_file(context.get(), file.c_str()) == 1 &&
                         SSL_CTX_use_PrivateKey_file(context.get(), file.c_str(), SSL_FILETYPE_PEM) == 1 &&
                         SSL_CTX_check_private_key(context.get()) == 1;
  ERR_clear_error();
  return is_usable ? context : nullptr;
}

}  // namespace

TlsCertificate::Version TlsCertificate::version() const {
  struct stat info{};
  if (::stat(file_.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino, info.st_size, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

std::shared_ptr<SSL_CTX> TlsCertificate::context() {
  if (const Version present = version(); present != read_version_) {
    read_version_ = present;
    if (auto context = read_context(file_)) context_ = std::move(context);
  }
  return context_;
}

namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using net::ip::tcp;
using TlsStream = net::ssl::stream<beast::tcp_stream>;

// Bytes that are discarded after a response, so that the peer can read it before the connection is reset.
constexpr size_t kMaxDiscarded = 64 << 10;

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

  // A reset drops the bytes that the kernel has buffered for a peer that does not read them.
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

  // Closing a socket with unread bytes would reset the connection, and the peer could lose the response.
  void shut_down() {
    error_code ignored;
    tcp_layer().socket().shutdown(tcp::socket::shutdown_send, ignored);
    discard();
  }

  void discard() {
    tcp_layer().async_read_some(net::buffer(chunk_), [self = self()](error_code error, size_t bytes) {
      self->discarded_ += bytes;
      if (!error && self->discarded_ < kMaxDiscarded) self->discard();
    });
  }

  Stream stream_;
};

}  // namespace

std::shared_ptr<Connection> make_connection(ConnectionTable::Id id, ConnectionOwner& owner, const HttpLimits& limits,
                                            tcp::socket socket) {
  return std::make_shared<StreamConnection<beast::tcp_stream>>(id, owner, limits, std::move(socket));
}

std::shared_ptr<Connection> make_tls_connection(ConnectionTable::Id id, ConnectionOwner& owner,
                                                const HttpLimits& limits, tcp::socket socket,
                                                net::ssl::context& context) {
  return std::make_shared<StreamConnection<TlsStream>>(id, owner, limits, std::move(socket), context);
}

}  // namespace oarlock
