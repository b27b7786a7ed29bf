#include "operator/kube/tls_context.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <vector>

#include "common/files.h"

namespace oarlock::kube {
namespace {

template <typename T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* object) const { Free(object); }
};
using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Bio = std::unique_ptr<BIO, BioFree>;

Bio bio_of(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

std::string name_of(const Pem& pem) { return pem.file.empty() ? "the data given" : pem.file; }

Result<std::string> text_of(const Pem& pem) {
  if (pem.file.empty()) return pem.text;
  return read_file(pem.file);
}

Result<std::vector<Certificate>> certificates_of(const Pem& pem) {
  return text_of(pem).and_then([&](const std::string& text) -> Result<std::vector<Certificate>> {
    std::vector<Certificate> out;
    const Bio bio = bio_of(text);
    while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) out.emplace_back(one);
    ERR_clear_error();
    if (out.empty()) return fail(ExitCode::kConfig, fmt::format("{}: no PEM certificate in it", name_of(pem)));
    return out;
  });
}

Result<PrivateKey> key_of(const Pem& pem) {
  return text_of(pem).and_then([&](const std::string& text) -> Result<PrivateKey> {
    // An encrypted key would ask for a passphrase on the terminal: give an empty one.
    PrivateKey key(PEM_read_bio_PrivateKey(bio_of(text).get(), nullptr, nullptr, const_cast<char*>("")));
    ERR_clear_error();
    if (key == nullptr)
      return fail(ExitCode::kConfig, fmt::format("{}: no (unencrypted) PEM private key in it", name_of(pem)));
    return key;
  });
}

struct ContextFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

Result<void> trust_system(SSL_CTX* context) {
  if (SSL_CTX_set_default_verify_paths(context) == 1) return {};
  return fail(ExitCode::kConfig, "the system has no authorities to trust");
}

Result<void> trust(SSL_CTX* context, const std::string& authorities) {
  return certificates_of({.text = authorities, .file = ""}).map([&](const std::vector<Certificate>& trusted) {
    for (const Certificate& one : trusted) X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get());
  });
}

Result<void> show(SSL_CTX* context, const ClientCertificate& client) {
  if (client.certificate.empty()) return {};
  const auto chain = certificates_of({.text = client.certificate, .file = ""});
  if (!chain) return tl::make_unexpected(chain.error());
  const auto key = key_of({.text = client.key, .file = ""});
  if (!key) return tl::make_unexpected(key.error());
  bool good = SSL_CTX_use_certificate(context, chain->front().get()) == 1;
  for (size_t i = 1; good && i < chain->size(); ++i) good = SSL_CTX_add1_chain_cert(context, (*chain)[i].get()) == 1;
  good = good && SSL_CTX_use_PrivateKey(context, key->get()) == 1;
  ERR_clear_error();
  if (good) return {};
  return fail(ExitCode::kConfig, "the client certificate and its key do not belong together");
}

}  // namespace

Result<void> check_key_pair(const Pem& certificate, const Pem& key) {
  if (certificate.empty() != key.empty())
    return fail(ExitCode::kConfig, "a client certificate and its key must be given together");
  if (certificate.empty()) return {};
  const auto chain = certificates_of(certificate);
  if (!chain) return tl::make_unexpected(chain.error());
  const auto private_key = key_of(key);
  if (!private_key) return tl::make_unexpected(private_key.error());
  if (X509_check_private_key(chain->front().get(), private_key->get()) == 1) return {};
  ERR_clear_error();
  return fail(ExitCode::kConfig, fmt::format("the certificate ({}) and its key ({}) do not belong together",
                                             name_of(certificate), name_of(key)));
}

Result<void> check_tls_material(const TransportOptions& options) {
  if (!options.ca.empty()) {
    if (const auto authorities = certificates_of(options.ca); !authorities)
      return tl::make_unexpected(authorities.error());
  }
  return check_key_pair(options.client_certificate, options.client_key);
}

TlsContexts::TlsContexts(const TransportOptions& options, For peer)
    : ca_(options.ca),
      certificate_(peer == For::kServer ? options.client_certificate : Pem()),
      key_(peer == For::kServer ? options.client_key : Pem()),
      verify_(options.verify),
      trusts_system_(peer == For::kProxy || options.ca.empty()) {}

Result<TlsContexts::Material> TlsContexts::read(const ClientCertificate& shown) const {
  Material out;
  auto authorities = text_of(ca_);
  if (!authorities) return tl::make_unexpected(authorities.error());
  out.authorities = std::move(*authorities);
  out.client = shown;
  if (!shown.certificate.empty()) return out;
  auto certificate = text_of(certificate_);
  if (!certificate) return tl::make_unexpected(certificate.error());
  auto key = text_of(key_);
  if (!key) return tl::make_unexpected(key.error());
  out.client = {.certificate = std::move(*certificate), .key = std::move(*key)};
  return out;
}

Result<std::shared_ptr<SSL_CTX>> TlsContexts::make(const Material& material) const {
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_client_method()), ContextFree());
  if (context == nullptr) return fail(ExitCode::kOsErr, "OpenSSL made no context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(context.get(), verify_ ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  const bool needs_system = verify_ && trusts_system_;
  return (needs_system ? trust_system(context.get()) : Result<void>())
      .and_then(
          [&] { return material.authorities.empty() ? Result<void>() : trust(context.get(), material.authorities); })
      .and_then([&] { return show(context.get(), material.client); })
      .map([&] { return context; });
}

Result<std::shared_ptr<SSL_CTX>> TlsContexts::current(const ClientCertificate& shown) {
  const std::lock_guard lock(mutex_);
  return read(shown).and_then([&](Material material) -> Result<std::shared_ptr<SSL_CTX>> {
    if (context_ != nullptr && material == material_) return context_;
    return make(material).map([&](std::shared_ptr<SSL_CTX> context) {
      material_ = std::move(material);
      context_ = std::move(context);
      return context_;
    });
  });
}

std::shared_ptr<SSL_CTX> TlsContexts::latest() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace oarlock::kube
