#include "http/connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <optional>

#include "http/request_head.h"

namespace oarlock {
namespace {

// For keys that are encrypted. Without it, OpenSSL would prompt for a pass phrase on the terminal, and wait.
int no_pass_phrase(char*, int, int, void*) { return 0; }

std::shared_ptr<SSL_CTX> read_context(const std::string& file, std::string& reason) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // A connection serves one request, and clients rarely return: neither renegotiation nor resumption is needed.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_default_passwd_cb(context.get(), no_pass_phrase);
  ERR_clear_error();
  const bool is_usable = SSL_CTX_use_certificate_chain_file(context.get(), file.c_str()) == 1 &&
                         SSL_CTX_use_PrivateKey_file(context.get(), file.c_str(), SSL_FILETYPE_PEM) == 1 &&
                         SSL_CTX_check_private_key(context.get()) == 1;
  if (is_usable) return context;
  const char* text = ERR_reason_error_string(ERR_peek_last_error());
  reason = text == nullptr ? "no certificate and key" : text;
  ERR_clear_error();
  return nullptr;
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
    std::string reason;
    if (auto context = read_context(file_, reason)) {
      context_ = std::move(context);
    } else if (report_) {
      report_(reason);
    }
  }
  return context_;
}

namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using net::ip::tcp;
// Bytes that are discarded after a response, so that the peer can read it before the connection is reset.
constexpr size_t kMaxDiscarded = 64 << 10;
// A peer may send its ClientHello, its request, and the bytes that are discarded, in so many pieces together, because
// each costs the I/O thread an event. A client needs fewer than 20. After the ClientHello, the pieces of a TLS
// connection are counted when they have been decrypted; kMaxTlsBytes limits those before.
constexpr size_t kMaxReads = 256;

// A peer may send so much over a TLS connection, including handshake messages, key updates and alerts, and a record
// counts as at least kMinTlsRecord, because it costs the time to decrypt it. A client needs four records for a request.
constexpr size_t kMaxTlsBytes = 32 << 10;
constexpr size_t kMinTlsRecord = 256;
constexpr int kRecordHeaderBytes = 5;

template <bool kIsTls>
class StreamConnection final : public Connection {
 public:
  StreamConnection(ConnectionTable::Id id, ConnectionOwner& owner, const HttpLimits& limits, tcp::socket socket)
      : Connection(id, owner, limits), tcp_(std::move(socket)) {}

  void start() override {
    set_reset_on_close(true);
    tcp_.expires_after(limits_.request_time);
    if constexpr (kIsTls) {
      read_hello();
    } else {
      read();
    }
  }

  using Connection::respond;
  void respond(SharedResponse response) override {
    response_head_ = response_head(*response);
    response_ = std::move(response);
    tcp_.expires_after(limits_.response_time);
    const net::const_buffer body = is_head_ ? net::const_buffer() : net::buffer(response_->body);
    const std::array<net::const_buffer, 2> buffers{net::buffer(response_head_), body};
    // Called after each piece that was written.
    const auto next_piece = [this](error_code error, size_t written) {
      if (!error && written > 0) owner_.on_progress(id_);
      return net::transfer_all()(error, written);
    };
    net::async_write(stream(), buffers, next_piece, [self = self()](error_code error, size_t) {
      if (!error) self->finish();
    });
  }

  void close() override { tcp_.close(); }

 private:
  std::shared_ptr<StreamConnection> self() { return std::static_pointer_cast<StreamConnection>(shared_from_this()); }
  auto& stream() {
    if constexpr (kIsTls) {
      return *tls_;
    } else {
      return tcp_;
    }
  }

  void read_hello() {
    tcp_.async_read_some(net::buffer(chunk_), [self = self()](error_code error, size_t bytes) {
      if (!error) self->on_hello_bytes(bytes);
    });
  }

  void on_hello_bytes(size_t bytes) {
    if (++reads_ > kMaxReads) return;  // nothing is pending, so the connection is closed
    append(hello_, {chunk_.data(), bytes}, limits_.head_bytes + kPieceBytes);
    const ClientHelloState state = inspect_client_hello(hello_, limits_.head_bytes);
    if (state == ClientHelloState::kIncomplete) return read_hello();
    if (state == ClientHelloState::kComplete) handshake();
  }

  void handshake() {
    const std::shared_ptr<SSL_CTX> settings = owner_.on_client_hello(id_);
    if (!settings) return;
    SSL_CTX_up_ref(settings.get());
    net::ssl::context context(settings.get());  // owns one reference
    tls_.emplace(tcp_, context);
    SSL_set_msg_callback(tls_->native_handle(), &count_record);
    SSL_set_msg_callback_arg(tls_->native_handle(), this);
    tls_->async_handshake(net::ssl::stream_base::server, net::buffer(hello_),
                          [self = self()](error_code error, size_t) {
                            self->hello_ = {};
                            if (!error) self->read();
                          });
  }

  // Called by OpenSSL for each message; for the header of each record with the type SSL3_RT_HEADER.
  static void count_record(int is_sent, int, int type, const void* bytes, size_t size, SSL*, void* connection) {
    if (is_sent != 0 || type != SSL3_RT_HEADER || size < kRecordHeaderBytes) return;
    const auto* header = static_cast<const unsigned char*>(bytes);
    static_cast<StreamConnection*>(connection)->add_record(kRecordHeaderBytes + header[3] * 256u + header[4]);
  }

  void add_record(size_t bytes) {
    tls_bytes_ += std::max(bytes, kMinTlsRecord);
    if (tls_bytes_ > kMaxTlsBytes) tcp_.close();
  }

  void read() {
    stream().async_read_some(net::buffer(chunk_), [self = self()](error_code error, size_t bytes) {
      if (!error) self->on_read(bytes);
    });
  }

  void on_read(size_t bytes) {
    if (++reads_ > kMaxReads) return;
    auto outcome = reader_.add({chunk_.data(), bytes});
    if (!outcome) return read();
    if (!*outcome) return respond(std::move(outcome->error()));
    is_head_ = (*outcome)->is_head;
    owner_.on_request(shared_from_this(), std::move(**outcome));
  }

  // A reset drops the bytes that the kernel has buffered for a peer that does not read them.
  void set_reset_on_close(bool value) {
    error_code ignored;
    tcp_.socket().set_option(net::socket_base::linger(value, 0), ignored);
  }

  void finish() {
    response_.reset();
    set_reset_on_close(false);
    owner_.on_response_sent(id_);
    tcp_.expires_after(limits_.close_time);
    if constexpr (kIsTls) {
      tls_->async_shutdown([self = self()](error_code) { self->shut_down(); });
    } else {
      shut_down();
    }
  }

  // Closing a socket with unread bytes would reset the connection, and the peer could lose the response.
  void shut_down() {
    error_code ignored;
    tcp_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    discard();
  }

  void discard() {
    const std::span<char> buffer = owner_.discard_buffer();
    tcp_.async_read_some(net::buffer(buffer.data(), buffer.size()), [self = self()](error_code error, size_t bytes) {
      self->discarded_ += bytes;
      if (!error && self->discarded_ < kMaxDiscarded && ++self->reads_ < kMaxReads) self->discard();
    });
  }

  beast::tcp_stream tcp_;
  std::string hello_;                                          // the bytes before the session
  std::optional<net::ssl::stream<beast::tcp_stream&>> tls_{};  // from the ClientHello on
  size_t tls_bytes_ = 0;
  size_t reads_ = 0;
};

}  // namespace

std::shared_ptr<Connection> make_connection(ConnectionTable::Id id, ConnectionOwner& owner, const HttpLimits& limits,
                                            tcp::socket socket) {
  return std::make_shared<StreamConnection<false>>(id, owner, limits, std::move(socket));
}

std::shared_ptr<Connection> make_tls_connection(ConnectionTable::Id id, ConnectionOwner& owner,
                                                const HttpLimits& limits, tcp::socket socket) {
  return std::make_shared<StreamConnection<true>>(id, owner, limits, std::move(socket));
}

}  // namespace oarlock
