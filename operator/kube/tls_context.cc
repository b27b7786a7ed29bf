#include "operator/kube/tls_context.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "common/files.h"
#include "operator/kube/system_authorities.h"

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

int as_checked(int good, X509_STORE_CTX*) { return good; }

int verify_and_report(X509_STORE_CTX* context, void* argument) {
  auto* report = static_cast<VerifyReport*>(argument);
  if (!report->address().empty()) {
    // asio's check compares with the host as it stands in the URL, brackets and all: OpenSSL's own takes its place.
    X509_STORE_CTX_set_verify_cb(context, as_checked);
    X509_VERIFY_PARAM_set1_ip_asc(X509_STORE_CTX_get0_param(context), report->address().c_str());
  }
  const int good = X509_verify_cert(context);
  const int code = X509_STORE_CTX_get_error(context);
  std::string problem;
  if (good != 1) {
    // The name is checked by asio's callback, which leaves no reason.
    problem = code == X509_V_OK || code == X509_V_ERR_UNSPECIFIED || code == X509_V_ERR_IP_ADDRESS_MISMATCH
                  ? "the server's certificate is for another host name"
                  : fmt::format("the server's certificate is not accepted: {}", X509_verify_cert_error_string(code));
  }
  report->set(std::move(problem));
  return good;
}

[[noreturn]] void raise(const Error& error) { throw std::runtime_error(error.message); }

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

void prepare_tls(SSL_CTX* context, const TransportOptions& options, VerifyReport& report) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  if (options.ca.empty()) {
    if (options.verify && !trust_system_authorities(context)) raise({ExitCode::kConfig, "no authority to trust"});
  } else {
    auto authorities = certificates_of(options.ca);
    if (!authorities) raise(authorities.error());
    X509_STORE* store = X509_STORE_new();
    SSL_CTX_set_cert_store(context, store);  // takes it over; it trusts the cluster's authority alone
    for (const Certificate& authority : *authorities) X509_STORE_add_cert(store, authority.get());
  }
  if (options.verify) SSL_CTX_set_cert_verify_callback(context, verify_and_report, &report);
  if (options.client_certificate.empty()) return;
  auto chain = certificates_of(options.client_certificate);
  if (!chain) raise(chain.error());
  auto key = key_of(options.client_key);
  if (!key) raise(key.error());
  bool good = SSL_CTX_use_certificate(context, chain->front().get()) == 1;
  for (size_t i = 1; good && i < chain->size(); ++i) good = SSL_CTX_add1_chain_cert(context, (*chain)[i].get()) == 1;
  good = good && SSL_CTX_use_PrivateKey(context, key->get()) == 1;
  ERR_clear_error();
  if (!good) raise({ExitCode::kConfig, "the client certificate and its key do not belong together"});
}

}  // namespace oarlock::kube
