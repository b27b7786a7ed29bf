// Credentials of a client: PEM material, and interfaces for bearer tokens and client certificates that are replaced
// while the program runs. The folder auth/ has the implementations.
#pragma once

#include <chrono>
#include <string>

#include "common/error.h"

namespace oarlock::kube {

// PEM data, or the path of a PEM file. A file is read again for each new connection, so a rotated file takes effect
// without a restart. If both are set, the file is used.
struct Pem {
  std::string text;
  std::string file;

  bool empty() const { return text.empty() && file.empty(); }
  bool operator==(const Pem&) const = default;
};

struct ClientCertificate {
  std::string certificate;  // PEM, including the chain; empty: none
  std::string key;          // PEM

  bool operator==(const ClientCertificate&) const = default;
};

// Supplies the bearer token of each request. Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Waits, for at most `limit`, until token() can return without waiting. An error means that it cannot. The default
  // implementation is for sources that never wait.
  virtual Result<void> prepare(std::chrono::milliseconds /*limit*/) { return {}; }
  // Returns the current token. If it is empty, the request has no Authorization header.
  virtual Result<std::string> token() = 0;
  // Reports that the server rejected the token with status 401. The next request uses a newly obtained one.
  virtual void invalidate() = 0;
};

// Supplies the client certificate. A transport requests it before each request; when it has changed, connections that
// presented the old certificate are replaced. Thread-safe.
class CertificateSource {
 public:
  virtual ~CertificateSource() = default;
  // Waits, for at most `limit`, until certificate() can return without waiting.
  virtual Result<void> prepare(std::chrono::milliseconds limit) = 0;
  // Returns the current certificate; an empty one if there is none.
  virtual Result<ClientCertificate> certificate() = 0;
};

}  // namespace oarlock::kube
