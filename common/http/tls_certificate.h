// The certificate of a TLS server, read from a file that may be replaced while the server runs. Not thread-safe.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>

namespace oarlock {

class TlsCertificate {
 public:
  // `file` is a PEM file with the certificate, its chain and its unencrypted key.
  explicit TlsCertificate(std::string file) : file_(std::move(file)) {}

  // Returns the settings for a new connection, with the current content of the file. If that is invalid, returns the
  // settings of the previous content, or null if there are none. Reads the file only if stat(2) reports a change.
  std::shared_ptr<SSL_CTX> context();

 private:
  // Device, inode, size, and time of the last change in seconds and nanoseconds.
  using Version = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;
  Version version() const;

  const std::string file_;
  Version read_version_{};  // of the content that was last read, whether valid or not
  std::shared_ptr<SSL_CTX> context_;
};

}  // namespace oarlock
