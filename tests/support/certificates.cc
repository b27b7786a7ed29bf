#include "tests/support/certificates.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <stdexcept>

namespace oarlock::test {
namespace {

constexpr long kHour = 3600;

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string("test certificate: ") + what);
}

template <typename Write>
std::string pem_of(Write write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  require(write(bio.get()) == 1, "PEM");
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<size_t>(size)};
}

std::string pem_of(X509* certificate) {
  return pem_of([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

void extend(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension(
      X509V3_EXT_nconf_nid(nullptr, &context, what, value.c_str()), X509_EXTENSION_free);
  require(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1, value.c_str());
}

}  // namespace

Authority::Authority(const std::string& name) : key_(make_key()) {
  certificate_ = sign(name, key_.get(), "");
  pem_ = pem_of(certificate_.get());
}

Identity Authority::issue(const std::string& common_name, const std::string& names) const {
  const Key key = make_key();
  const Certificate certificate = sign(common_name, key.get(), names);
  return {pem_of(certificate.get()), pem_of([&](BIO* bio) {
            return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

Authority::Key Authority::make_key() {
  Key key(EVP_EC_gen("P-256"));
  require(key != nullptr, "key");
  return key;
}

Authority::Certificate Authority::sign(const std::string& common_name, EVP_PKEY* key, const std::string& names) const {
  Certificate out(X509_new());
  const bool is_own = certificate_ == nullptr;
  X509_set_version(out.get(), X509_VERSION_3);
  uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1, "serial number");
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(out.get()), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(out.get()), -kHour);
  X509_gmtime_adj(X509_getm_notAfter(out.get()), 24 * kHour);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(out.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
  X509_set_issuer_name(out.get(), X509_get_subject_name(is_own ? out.get() : certificate_.get()));
  X509_set_pubkey(out.get(), key);
  X509* issuer = is_own ? out.get() : certificate_.get();
  extend(out.get(), issuer, NID_basic_constraints, is_own ? "critical,CA:TRUE" : "CA:FALSE");
  if (!names.empty()) extend(out.get(), issuer, NID_subject_alt_name, names);
  require(X509_sign(out.get(), key_.get(), EVP_sha256()) > 0, "signature");
  return out;
}

}  // namespace oarlock::test
