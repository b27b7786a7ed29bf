// Certificates for tests: an authority, and the certificates that it signs. ECDSA P-256, generated in a millisecond.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace oarlock::test {

struct Identity {
  std::string certificate;  // PEM
  std::string key;          // PEM

  std::string both() const { return certificate + key; }  // the content of a server's certificate file
};

// The functions throw std::runtime_error if OpenSSL fails.
class Authority {
 public:
  explicit Authority(const std::string& name);

  const std::string& certificate() const { return pem_; }
  // For servers and clients, valid for a day. `names`: as OpenSSL's subjectAltName, "IP:127.0.0.1,DNS:localhost".
  Identity issue(const std::string& common_name, const std::string& names = "") const;

 private:
  template <typename T, void (*Free)(T*)>
  struct Deleter {
    void operator()(T* object) const { Free(object); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;
  using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;

  static Key make_key();
  // Signed by the authority, or self-signed if there is no authority yet.
  Certificate sign(const std::string& common_name, EVP_PKEY* key, const std::string& names) const;

  Key key_;
  Certificate certificate_;
  std::string pem_;
};

}  // namespace oarlock::test
