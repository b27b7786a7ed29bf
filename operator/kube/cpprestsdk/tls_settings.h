// Applies Oarlock's TLS rules to the contexts that cpprestsdk makes, one for each connection: the authorities and the
// client certificate of TransportOptions, the expected name without a fallback to the certificate's common name, and
// TLS 1.2 as the oldest version.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <mutex>
#include <string>

#include "operator/kube/tls_context.h"
#include "operator/kube/transport_options.h"

namespace oarlock::kube {

// Must outlive the contexts that it has been applied to. Thread-safe.
class TlsSettings {
 public:
  // `name`: the host name or IP address that the certificate must be for.
  TlsSettings(const TransportOptions& options, std::string name);
  TlsSettings(const TlsSettings&) = delete;
  TlsSettings& operator=(const TlsSettings&) = delete;

  // Selects the client certificate for new connections instead of that of the options; empty: that of the options.
  void show(const ClientCertificate& certificate);
  // Prepares `context` with the material as it is now; files are read. Throws std::runtime_error if they are invalid:
  // cpprestsdk calls this and delivers the exception with the response.
  void apply(SSL_CTX* context);
  // Changes when connections that were made before should not be used again.
  int version() const { return version_; }
  // Why the last certificate was rejected; empty if none was since the last call.
  std::string take_rejection();

 private:
  static int check_certificate(X509_STORE_CTX* store, void* settings);
  static void send_server_name(const SSL* ssl, int where, int result);
  void record(int verify_error);

  const std::string name_;
  const bool is_address_;
  const bool verify_;
  std::atomic<int> version_ = 0;
  std::mutex mutex_;
  TlsContexts contexts_;
  std::shared_ptr<SSL_CTX> material_;  // of the newest connection
  ClientCertificate shown_;
  std::string rejection_;
};

}  // namespace oarlock::kube
