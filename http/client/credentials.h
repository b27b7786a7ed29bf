// Credentials of a client: PEM material, and sources of bearer tokens and client certificates that are replaced while
// the program runs: a constant token, and a file that is rewritten periodically. kube/auth has the source that
// runs a credential plugin.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "common/clock.h"
#include "common/error.h"

namespace oarlock::http {

// Limit of a token file, a PEM file and a file of certificate authorities, in bytes. Kubernetes limits the Secrets and
// ConfigMaps that contain them to 1 MiB.
inline constexpr size_t kMaxCredentialFileBytes = 4u << 20;

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
  // Obtains the token. Waits for at most `limit`, and until `cancel` requests a stop. The default implementation is for
  // sources that never wait.
  virtual Result<void> prepare(std::chrono::milliseconds /*limit*/, const std::stop_token& /*cancel*/) { return {}; }
  // Returns the current token, without waiting. If it is empty, the request has no Authorization header.
  virtual Result<std::string> token() = 0;
  // Reports that the server rejected the token with status 401. The next request uses a newly obtained one.
  virtual void invalidate() = 0;
};

// Supplies the client certificate. A transport requests it before each request; when it has changed, connections that
// presented the old certificate are replaced. Thread-safe.
class CertificateSource {
 public:
  virtual ~CertificateSource() = default;
  // Obtains the certificate. Waits for at most `limit`, and until `cancel` requests a stop.
  virtual Result<void> prepare(std::chrono::milliseconds limit, const std::stop_token& cancel) = 0;
  // Returns the current certificate, without waiting; an empty one if there is none.
  virtual Result<ClientCertificate> certificate() = 0;
};

class ConstantToken final : public TokenSource {
 public:
  explicit ConstantToken(std::string token) : token_(std::move(token)) {}
  Result<std::string> token() override { return token_; }
  void invalidate() override {}

 private:
  const std::string token_;
};

// A token file such as the projected service account token, which the kubelet replaces about every hour. The file is
// read again after one minute, or for the next request after invalidate(). If it cannot be read, the last token stays
// in use, as in client-go. It must be a regular file or a symbolic link to one.
class FileToken final : public TokenSource {
 public:
  FileToken(std::string path, std::shared_ptr<const Clock> clock) : path_(std::move(path)), clock_(std::move(clock)) {}
  Result<std::string> token() override;
  void invalidate() override;

 private:
  const std::string path_;
  const std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::string token_;
  SteadyTime read_again_at_{};
};

// Base64 (RFC 4648) of kubeconfig fields and proxy credentials.
std::string base64_encode(std::string_view bytes);

// Ignores white space in `text`. Fails with kConfig and the message "not base64".
Result<std::string> base64_decode(std::string_view text);

}  // namespace oarlock::http
