#include "http/client/tls_context.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <vector>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock::http {
namespace {

template <typename T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* object) const { Free(object); }
};
using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using Certificates = std::vector<Certificate>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Bio = std::unique_ptr<BIO, BioFree>;

Bio make_bio(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// The origin of the PEM material in messages.
std::string source_name(const Pem& pem) { return pem.file.empty() ? "the inline data" : pem.file; }

Result<std::string> read_pem(const Pem& pem) {
  if (pem.file.empty()) return pem.text;
  return read_regular_file(pem.file, kMaxCredentialFileBytes);
}

Result<Certificates> read_certificates(const Pem& pem) {
  ASSIGN_OR_RETURN(const std::string text, read_pem(pem));
  Certificates out;
  const Bio bio = make_bio(text);
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) out.emplace_back(one);
  ERR_clear_error();
  if (out.empty()) return fail(ExitCode::kConfig, fmt::format("{}: contains no PEM certificate", source_name(pem)));
  return out;
}

Result<PrivateKey> read_key(const Pem& pem) {
  ASSIGN_OR_RETURN(const std::string text, read_pem(pem));
  // The empty passphrase prevents a prompt on the terminal for an encrypted key.
  PrivateKey key(PEM_read_bio_PrivateKey(make_bio(text).get(), nullptr, nullptr, const_cast<char*>("")));
  ERR_clear_error();
  if (key == nullptr)
    return fail(ExitCode::kConfig, fmt::format("{}: contains no unencrypted PEM private key", source_name(pem)));
  return key;
}

struct ContextFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

Result<void> trust_system(SSL_CTX* context) {
  if (SSL_CTX_set_default_verify_paths(context) == 1) return {};
  return fail(ExitCode::kConfig, "the system has no trusted certificate authorities");
}

Result<void> trust(SSL_CTX* context, const std::string& authorities) {
  return read_certificates({.text = authorities, .file = ""}).map([&](const Certificates& trusted) {
    for (const Certificate& one : trusted) X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get());
  });
}

Result<void> present(SSL_CTX* context, const ClientCertificate& client) {
  if (client.certificate.empty()) return {};
  ASSIGN_OR_RETURN(const Certificates chain, read_certificates({.text = client.certificate, .file = ""}));
  ASSIGN_OR_RETURN(const PrivateKey key, read_key({.text = client.key, .file = ""}));
  bool good = SSL_CTX_use_certificate(context, chain.front().get()) == 1;
  for (size_t i = 1; good && i < chain.size(); ++i) good = SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1;
  good = good && SSL_CTX_use_PrivateKey(context, key.get()) == 1;
  ERR_clear_error();
  if (good) return {};
  return fail(ExitCode::kConfig, "the client certificate and its key do not belong together");
}

}  // namespace

Result<void> check_key_pair(const Pem& certificate, const Pem& key) {
  if (certificate.empty() != key.empty())
    return fail(ExitCode::kConfig, "a client certificate and its key must be given together");
  if (certificate.empty()) return {};
  ASSIGN_OR_RETURN(const Certificates chain, read_certificates(certificate));
  ASSIGN_OR_RETURN(const PrivateKey private_key, read_key(key));
  if (X509_check_private_key(chain.front().get(), private_key.get()) == 1) return {};
  ERR_clear_error();
  return fail(ExitCode::kConfig, fmt::format("the certificate ({}) and its key ({}) do not belong together",
                                             source_name(certificate), source_name(key)));
}

Result<void> check_tls_material(const TransportOptions& options) {
  if (!options.ca.empty()) RETURN_IF_ERROR(read_certificates(options.ca));
  return check_key_pair(options.client_certificate, options.client_key);
}

TlsContexts::TlsContexts(const TransportOptions& options, Peer peer)
    : ca_(options.ca),
      certificate_(peer == Peer::kServer ? options.client_certificate : Pem()),
      key_(peer == Peer::kServer ? options.client_key : Pem()),
      verify_(options.verify),
      trusts_system_(peer == Peer::kProxy || options.ca.empty()) {}

Result<TlsContexts::Material> TlsContexts::read_material(const ClientCertificate& client) const {
  Material out{.authorities = "", .client = client};
  ASSIGN_OR_RETURN(out.authorities, read_pem(ca_));
  if (!client.certificate.empty()) return out;
  ASSIGN_OR_RETURN(out.client.certificate, read_pem(certificate_));
  ASSIGN_OR_RETURN(out.client.key, read_pem(key_));
  return out;
}

Result<std::shared_ptr<SSL_CTX>> TlsContexts::make_context(const Material& material) const {
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_client_method()), ContextFree());
  if (context == nullptr) return fail(ExitCode::kOsErr, "OpenSSL cannot create a TLS context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // TLS 1.2: each renegotiation costs a handshake, and a server could begin them without end.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_verify(context.get(), verify_ ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (verify_ && trusts_system_) RETURN_IF_ERROR(trust_system(context.get()));
  if (!material.authorities.empty()) RETURN_IF_ERROR(trust(context.get(), material.authorities));
  RETURN_IF_ERROR(present(context.get(), material.client));
  return context;
}

Result<std::shared_ptr<SSL_CTX>> TlsContexts::current(const ClientCertificate& client) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Material material, read_material(client));
  if (context_ != nullptr && material == material_) return context_;
  ASSIGN_OR_RETURN(context_, make_context(material));
  material_ = std::move(material);
  return context_;
}

std::shared_ptr<SSL_CTX> TlsContexts::latest() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace oarlock::http
