// Bearer tokens: constant, or in a file that is written anew from time to time (service account tokens live an hour).
#pragma once

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
  virtual Result<std::string> token() = 0;
  virtual void drop() = 0;  // the server has refused it (401): fetch it anew for the next request
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
