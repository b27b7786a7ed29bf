// The certificate of a TLS server, in a file that may be renewed while the server runs.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>

namespace oarlock {

class TlsCertificate {
 public:
  // PEM with the certificate, its chain and its unencrypted key.
  explicit TlsCertificate(std::string file) : file_(std::move(file)) {}

  // Settings for a new connection, with the file's present content. If that cannot be used, those of the previous
  // content; null if there were none. Reads the file only if stat(2) shows that it has changed.
  std::shared_ptr<SSL_CTX> context();

 private:
  // Device, inode, size, and time of the last change in seconds and nanoseconds.
  using Version = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;
  Version version() const;

  const std::string file_;
  Version read_version_{};  // of the content that was read last, with success or without
  std::shared_ptr<SSL_CTX> context_;
};

}  // namespace oarlock
