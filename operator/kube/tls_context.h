// What a connection trusts and shows: PEM material into OpenSSL's contexts.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <mutex>
#include <string>

#include "common/error.h"
#include "operator/kube/transport_options.h"

namespace oarlock::kube {

// Are they PEM and do they belong together? Both empty is good too. kConfig or kNoInput otherwise.
Result<void> check_key_pair(const Pem& certificate, const Pem& key);

// Can the options' PEM material be read, and do certificate and key belong together? kConfig or kNoInput otherwise.
Result<void> check_tls_material(const TransportOptions& options);

// Contexts for connections to a server. Thread-safe.
class TlsContexts {
 public:
  // To a proxy, the client certificate is not presented, and the system's authorities are trusted besides those of the
  // options, which are the cluster's.
  enum class For { kServer, kProxy };
  explicit TlsContexts(const TransportOptions& options, For peer = For::kServer);

  // For a connection that is made now. Files are read each time; the context is a new one where they have changed.
  // `shown`: the certificate to show instead of the options' one; empty: none.
  Result<std::shared_ptr<SSL_CTX>> current(const ClientCertificate& shown);
  // What current() gave last. A connection with another one trusts, or shows, what has been replaced.
  std::shared_ptr<SSL_CTX> latest() const;

 private:
  struct Material {
    std::string authorities;  // empty: the system's
    ClientCertificate client;
    bool operator==(const Material&) const = default;
  };
  Result<Material> read(const ClientCertificate& shown) const;
  Result<std::shared_ptr<SSL_CTX>> make(const Material& material) const;

  const Pem ca_;
  const Pem certificate_;
  const Pem key_;
  const bool verify_;
  const bool trusts_system_;  // besides ca_
  mutable std::mutex mutex_;
  Material material_;  // of context_
  std::shared_ptr<SSL_CTX> context_;
};

}  // namespace oarlock::kube
