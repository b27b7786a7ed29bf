#include "common/http/connection.h"

#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <type_traits>

namespace oarlock {
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
