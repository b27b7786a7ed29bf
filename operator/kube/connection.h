// One connection to a server, plain or TLS: bytes out, bytes in, within the limits of a call. Not thread-safe.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/file_descriptor.h"
#include "operator/kube/server_address.h"
#include "operator/kube/transport.h"
#include "operator/kube/waiter.h"

namespace oarlock::kube {

// What a TLS connection is made with.
struct TlsUse {
  std::shared_ptr<SSL_CTX> context;  // null: plain
  std::string name;                  // host name or IP address that the certificate must be for
};

class Connection {
 public:
  // kConnect, kTls, or the waiter's errors.
  static TransportResult<std::unique_ptr<Connection>> open(const ServerAddress& server, const TlsUse& tls,
                                                           Waiter& waiter);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // All of them. After an error of this or of read() the connection can only be destroyed.
  TransportResult<void> write(std::string_view bytes, Waiter& waiter);
  // What there is, at least one byte. 0: the server has ended the connection, with TLS in so many words.
  TransportResult<size_t> read(std::span<char> buffer, Waiter& waiter);

  // Nothing has come since the last answer, not even the end: good for another request.
  bool quiet() const;
  // Bytes that read() has given so far.
  size_t received() const { return received_; }
  const std::shared_ptr<SSL_CTX>& context() const { return context_; }

 private:
  struct SslFree {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  Connection(FileDescriptor socket, std::shared_ptr<SSL_CTX> context);
  TransportResult<void> shake_hands(const std::string& name, Waiter& waiter);
  // The result of an OpenSSL call that is made until it neither wants to read nor to write. 0: close_notify.
  template <typename Call>
  TransportResult<size_t> tls(Call call, Waiter& waiter);
  template <typename Call>
  TransportResult<size_t> plain(Call call, short events, Waiter& waiter);

  const FileDescriptor socket_;
  const std::shared_ptr<SSL_CTX> context_;
  const std::unique_ptr<SSL, SslFree> ssl_;  // null: plain
  size_t received_ = 0;
  bool broken_ = false;  // no word of farewell
};

}  // namespace oarlock::kube
