// Sources of bearer tokens: a constant, and a file that is rewritten periodically.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/error.h"
#include "operator/kube/http/credentials.h"

namespace oarlock::kube {

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
// in use, as in client-go.
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

}  // namespace oarlock::kube
