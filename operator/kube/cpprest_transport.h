// Transport over cpprestsdk, with a remedy for each of its known faults. Only the .cc includes its headers.
#pragma once

#include <memory>
#include <string>

#include "common/error.h"
#include "operator/kube/token.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

// PEM text, or a file with it that is read for each new connection (so a rotated file is used at once).
struct Pem {
  std::string text;
  std::string file;

  bool empty() const { return text.empty() && file.empty(); }
  bool operator==(const Pem&) const = default;
};

struct TransportOptions {
  std::string server;  // "https://10.0.0.1:443", "https://[fd00::1]:443"; with a path prefix where a proxy wants one
  Pem ca;              // the only authority trusted; empty: the system's
  bool verify = true;  // false: any certificate (kubeconfig's insecure-skip-tls-verify)
  std::string tls_server_name;  // the name the certificate must have, where it is not the server's host
  Pem client_certificate;
  Pem client_key;
  std::shared_ptr<TokenSource> token;              // null: none
  std::shared_ptr<CertificateSource> certificate;  // null: none; what it gives goes before client_certificate
  std::string user_agent = "oarlock";
};

class CpprestTransport final : public Transport {
 public:
  // Checks the address and the PEM material; kConfig with one line otherwise.
  static Result<std::unique_ptr<CpprestTransport>> create(TransportOptions options);

  // Waits for requests that were given up but not yet ended. Cancel running calls first.
  ~CpprestTransport() override;

  TransportResult<Response> send(const Request& request, Milliseconds deadline, std::stop_token cancel) override;
  TransportResult<Response> stream(const Request& request, ByteSink& sink, StreamLimits limits,
                                   std::stop_token cancel) override;

 private:
  class Impl;
  explicit CpprestTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace oarlock::kube
