// What a connection trusts and shows: PEM material into OpenSSL's context, and what a refused certificate was refused
// for.
#pragma once

#include <openssl/ssl.h>

#include <mutex>
#include <string>

#include "common/error.h"
#include "operator/kube/cpprest_transport.h"

namespace oarlock::kube {

// What the certificate check found wrong last, for cpprest says only "Error in SSL handshake".
class VerifyReport {
 public:
  // `address`: the IP address that the certificate must be for, where the server is an IPv6 literal; else empty.
  explicit VerifyReport(std::string address) : address_(std::move(address)) {}
  const std::string& address() const { return address_; }
  void set(std::string problem) {
    const std::lock_guard lock(mutex_);
    problem_ = std::move(problem);
  }
  std::string get() const {
    const std::lock_guard lock(mutex_);
    return problem_;
  }

 private:
  const std::string address_;
  mutable std::mutex mutex_;
  std::string problem_;
};

// Are they PEM and do they belong together? Both empty is good too. kConfig or kNoInput otherwise.
Result<void> check_key_pair(const Pem& certificate, const Pem& key);

// Can the options' PEM material be read, and do certificate and key belong together? kConfig or kNoInput otherwise.
Result<void> check_tls_material(const TransportOptions& options);

// Called for each new connection, so that rotated files are used at once. The report must outlive the context. Throws
// what is wrong; cpprest reports it as the request's error.
void prepare_tls(SSL_CTX* context, const TransportOptions& options, VerifyReport& report);

}  // namespace oarlock::kube
