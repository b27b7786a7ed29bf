// Which server, whom to trust, and who we are to it.
#pragma once

#include <memory>
#include <string>

#include "operator/kube/token.h"

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
  std::string proxy;  // "http://user:password@proxy:3128" or https; empty: none. Of http(s) servers of any address
  std::string user_agent = "oarlock";
};

}  // namespace oarlock::kube
