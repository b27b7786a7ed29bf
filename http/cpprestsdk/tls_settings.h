// Applies Oarlock's TLS rules to the contexts that cpprestsdk makes for each connection: the authorities and the client
// certificate of TransportOptions, the expected name without a fallback to the certificate's common name, and TLS 1.2
// as the minimum version.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <mutex>
#include <string>

#include "http/client/tls_context.h"
#include "http/client/transport.h"

namespace oarlock::http {

// Must outlive the contexts that it has been applied to. Thread-safe.
class TlsSettings {
 public:
  // `name`: the host name or IP address that the certificate must be for.
  TlsSettings(const TransportOptions& options, std::string name);
  TlsSettings(const TlsSettings&) = delete;
  TlsSettings& operator=(const TlsSettings&) = delete;

  // Sets the client certificate of new connections. If it is empty, they use the certificate of the options.
  void set_certificate(const ClientCertificate& certificate);
  // Configures `context` with the current material, reading the files again. cpprestsdk calls this. Throws
  // std::runtime_error if the material is invalid; cpprestsdk delivers the exception with the response.
  void apply(SSL_CTX* context);
  // A number that changes when existing connections must not be reused.
  int version() const { return version_; }
  // Returns the reason why the last server certificate was rejected; empty if none was rejected since the last call.
  std::string take_rejection();

 private:
  static int check_certificate(X509_STORE_CTX* store, void* settings);
  static void send_server_name(const SSL* ssl, int where, int result);
  void record_rejection(int verify_error);

  const std::string name_;
  const bool is_address_;
  const bool verify_;
  std::atomic<int> version_ = 0;
  std::mutex mutex_;
  TlsContexts contexts_;
  std::shared_ptr<SSL_CTX> material_;  // of the most recent connection
  ClientCertificate certificate_;
  std::string rejection_;
};

}  // namespace oarlock::http
