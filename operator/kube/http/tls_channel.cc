#include "operator/kube/http/tls_channel.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <utility>

#include "operator/kube/server_address.h"

namespace oarlock::kube {
namespace {

namespace ssl = boost::asio::ssl;
using Kind = TransportError::Kind;

// Asio's wrapper takes over one reference to the context.
ssl::context share(SSL_CTX* context) {
  SSL_CTX_up_ref(context);
  return ssl::context(context);
}

// OpenSSL compares the name while it verifies the certificate. Asio's host_name_verification is not used: in Boost 1.74
// it accepts the common name of a certificate without a DNS name.
void set_expected_name(SSL* session, const std::string& name) {
  X509_VERIFY_PARAM* param = SSL_get0_param(session);
  X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  if (is_ip_address(name)) {
    X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str());
    return;
  }
  // SSL_set_tlsext_host_name without the C cast of that macro.
  SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(name.c_str()));
  X509_VERIFY_PARAM_set1_host(param, name.c_str(), name.size());
}

std::string handshake_problem(SSL* session, const std::string& peer, const ErrorCode& error) {
  const long verified = SSL_get_verify_result(session);
  switch (verified) {
    case X509_V_OK: {
      const bool is_closed = error == boost::asio::error::eof || error == ssl::error::stream_truncated;
      return fmt::format("TLS handshake failed: {}; the {} may refuse the client certificate, or may not use TLS",
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
  set_expected_name(stream_.native_handle(), name);
  ErrorCode error;
  stream_.handshake(ssl::stream_base::client, error);
  if (!error) return {};
  if (const auto good = limits.check(); !good) return good;
  return failed(Kind::kTls, handshake_problem(stream_.native_handle(), peer, error));
}

void TlsChannel::close() {
  ErrorCode ignored;
  stream_.shutdown(ignored);  // sends close_notify and does not wait for the peer's
  next_->close();
  ERR_clear_error();
}

}  // namespace oarlock::kube
