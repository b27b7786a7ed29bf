#include "http/cpprestsdk/tls_settings.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <stdexcept>
#include <utility>

#include "http/client/address.h"

namespace oarlock::http {
namespace {

// Returns the index of OpenSSL's slot for a context's pointer to its settings. Slot 0 belongs to Asio.
int settings_slot() {
  static const int slot = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return slot;
}

// Copies the authorities and the client certificate. cpprestsdk makes its own SSL_CTX and cannot share another one.
void copy_material(SSL_CTX* from, SSL_CTX* to) {
  SSL_CTX_set1_cert_store(to, SSL_CTX_get_cert_store(from));
  X509* certificate = SSL_CTX_get0_certificate(from);
  if (certificate == nullptr) return;
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(from, &chain);
  SSL_CTX_use_certificate(to, certificate);
  if (chain != nullptr) SSL_CTX_set1_chain(to, chain);
  SSL_CTX_use_PrivateKey(to, SSL_CTX_get0_privatekey(from));
}

}  // namespace

TlsSettings::TlsSettings(const TransportOptions& options, std::string name)
    : name_(std::move(name)),
      is_address_(is_ip_address(name_)),
      verify_(options.verify),
      contexts_(options, TlsContexts::Peer::kServer) {}

void TlsSettings::set_certificate(const ClientCertificate& certificate) {
  const std::lock_guard lock(mutex_);
  if (certificate == certificate_) return;
  certificate_ = certificate;
  ++version_;
}

void TlsSettings::apply(SSL_CTX* context) {
  const std::lock_guard lock(mutex_);
  const auto material = contexts_.current(certificate_);
  if (!material) throw std::runtime_error(material.error().message);
  if (material_ != nullptr && material_ != *material) ++version_;
  material_ = *material;
  copy_material(material_.get(), context);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_ex_data(context, settings_slot(), this);
  SSL_CTX_set_info_callback(context, &TlsSettings::send_server_name);
  if (verify_) SSL_CTX_set_cert_verify_callback(context, &TlsSettings::check_certificate, this);
  ERR_clear_error();
}

// Replaces the verification of cpprestsdk, which expects the text of the Host header as the name and accepts a
// certificate that has it only as its common name.
int TlsSettings::check_certificate(X509_STORE_CTX* store, void* settings) {
  auto* self = static_cast<TlsSettings*>(settings);
  X509_STORE_CTX_set_verify_cb(store, [](int ok, X509_STORE_CTX*) { return ok; });
  X509_VERIFY_PARAM* param = X509_STORE_CTX_get0_param(store);
  X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const std::string& name = self->name_;
  const bool is_set = self->is_address_ ? X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str()) == 1
                                        : is_verifiable_host_name(name) &&
                                              X509_VERIFY_PARAM_set1_host(param, name.data(), name.size()) == 1;
  if (is_set && X509_verify_cert(store) == 1) return 1;
  self->record_rejection(X509_STORE_CTX_get_error(store));
  return 0;
}

// Sends the server name. cpprestsdk would send the text of the Host header, port and brackets included, as the name.
void TlsSettings::send_server_name(const SSL* ssl, int where, int /*result*/) {
  if ((where & SSL_CB_HANDSHAKE_START) == 0) return;
  const auto* self = static_cast<const TlsSettings*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), settings_slot()));
  if (self == nullptr || self->is_address_) return;
  // SSL_set_tlsext_host_name without the C cast of that macro.
  SSL_ctrl(const_cast<SSL*>(ssl), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
           const_cast<char*>(self->name_.c_str()));
}

void TlsSettings::record_rejection(int verify_error) {
  const bool is_name = verify_error == X509_V_ERR_HOSTNAME_MISMATCH || verify_error == X509_V_ERR_IP_ADDRESS_MISMATCH;
  const std::lock_guard lock(mutex_);
  rejection_ = is_name ? "the server's certificate is for another host name"
                       : fmt::format("the server's certificate is not accepted: {}",
                                     X509_verify_cert_error_string(verify_error));
}

std::string TlsSettings::take_rejection() {
  const std::lock_guard lock(mutex_);
  return std::exchange(rejection_, {});
}

}  // namespace oarlock::http
