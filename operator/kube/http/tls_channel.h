// TLS on top of another channel.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <string>

#include "operator/kube/http/call_limits.h"
#include "operator/kube/http/channel.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

class TlsChannel final : public Channel {
 public:
  // Keeps the OpenSSL context as long as it needs it.
  TlsChannel(std::unique_ptr<Channel> next, SSL_CTX* context);

  // The certificate must be for `name`, a host name or IP address, in its subjectAltName; its common name does not
  // count. kTls, or the error of the limits. `peer` is the word for the other side in messages: "server".
  TransportResult<void> handshake(const std::string& name, const std::string& peer, const CallLimits& limits);

  executor_type get_executor() override { return next_->get_executor(); }
  void close() override;

 private:
  size_t read(boost::asio::mutable_buffer buffer, ErrorCode& error) override {
    return stream_.read_some(boost::asio::buffer(buffer), error);
  }
  size_t write(boost::asio::const_buffer buffer, ErrorCode& error) override {
    return stream_.write_some(boost::asio::buffer(buffer), error);
  }

  const std::unique_ptr<Channel> next_;
  boost::asio::ssl::stream<Channel&> stream_;
};

}  // namespace oarlock::kube
