// OpenSSL contexts made from the PEM material of TransportOptions.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <mutex>
#include <string>

#include "common/error.h"
#include "http/client/transport.h"

namespace oarlock::http {

// Checks that certificate and key are PEM and belong together; both may be empty. Fails with kConfig or kNoInput.
Result<void> check_key_pair(const Pem& certificate, const Pem& key);

// Checks that all PEM material of the options can be read and that certificate and key belong together. Fails with
// kConfig or kNoInput.
Result<void> check_tls_material(const TransportOptions& options);

// Provides the contexts for connections to one peer. Thread-safe.
class TlsContexts {
 public:
  // A connection to a proxy does not present the client certificate. It trusts the authorities of the system in
  // addition to those of the options, which are the cluster's.
  enum class Peer { kServer, kProxy };
  TlsContexts(const TransportOptions& options, Peer peer);

  // Returns the context for a new connection. Reads the files again, and makes a new context if the material has
  // changed. `client`, unless it is empty, is presented instead of the options' client certificate.
  Result<std::shared_ptr<SSL_CTX>> current(const ClientCertificate& client);

  // Returns the result of the last successful call of current(). A connection with any other context uses outdated
  // material.
  std::shared_ptr<SSL_CTX> latest() const;

 private:
  struct Material {
    std::string authorities;  // empty: those of the system
    ClientCertificate client;
    bool operator==(const Material&) const = default;
  };
  Result<Material> read_material(const ClientCertificate& client) const;
  Result<std::shared_ptr<SSL_CTX>> make_context(const Material& material) const;

  const Pem ca_;
  const Pem certificate_;
  const Pem key_;
  const bool verify_;
  const bool trusts_system_;  // in addition to ca_
  mutable std::mutex mutex_;
  Material material_;  // of context_
  std::shared_ptr<SSL_CTX> context_;
};

}  // namespace oarlock::http
