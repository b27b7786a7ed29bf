// Credentials that change. Bearer tokens: constant, or in a file that is written anew from time to time (service
// account tokens live an hour). Client certificates: of a credential plugin (exec_plugin.h).
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "common/clock.h"
#include "common/error.h"

namespace oarlock::kube {

// Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Waits, for at most `limit`, until the other calls can answer without waiting. A failure means that they cannot.
  virtual Result<void> prepare(std::chrono::milliseconds /*limit*/) { return {}; }
  virtual Result<std::string> token() = 0;  // empty: requests carry none
  virtual void drop() = 0;                  // the server has refused it (401): fetch it anew for the next request
};

struct ClientCertificate {
  std::string certificate;  // PEM, with the chain; empty: none
  std::string key;          // PEM

  bool operator==(const ClientCertificate&) const = default;
};

// Asked before each request. Connections show the certificate that they were made with, so new ones take the place of
// all when it changes. Thread-safe.
class CertificateSource {
 public:
  virtual ~CertificateSource() = default;
  virtual Result<void> prepare(std::chrono::milliseconds limit) = 0;  // as of TokenSource
  virtual Result<ClientCertificate> certificate() = 0;
};

class ConstantToken final : public TokenSource {
 public:
  explicit ConstantToken(std::string token) : token_(std::move(token)) {}
  Result<std::string> token() override { return token_; }
  void drop() override {}

 private:
  const std::string token_;
};

// Reads the file again after a minute. While it cannot be read the last token is used, as client-go does.
class FileToken final : public TokenSource {
 public:
  FileToken(std::string path, std::shared_ptr<const Clock> clock) : path_(std::move(path)), clock_(std::move(clock)) {}
  Result<std::string> token() override;
  void drop() override;

 private:
  const std::string path_;
  const std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::string token_;
  SteadyTime read_again_{};
};

}  // namespace oarlock::kube
