#include "operator/kube/auth/token.h"

#include <fmt/format.h>

#include "common/files.h"
#include "common/text.h"

namespace oarlock::kube {
namespace {

constexpr auto kReadInterval = std::chrono::minutes(1);

}  // namespace

Result<std::string> FileToken::token() {
  const std::lock_guard lock(mutex_);
  if (!token_.empty() && clock_->steady() < read_again_at_) return token_;
  const Result<std::string> text = read_file(path_);
  if (text) {
    if (const std::string_view token = trim(*text); !token.empty()) {
      token_ = token;
      read_again_at_ = clock_->steady() + kReadInterval;
    }
  }
  if (!token_.empty()) return token_;
  if (!text) return tl::make_unexpected(text.error());
  return fail(ExitCode::kDataErr, fmt::format("{}: the token file is empty", path_));
}

void FileToken::invalidate() {
  const std::lock_guard lock(mutex_);
  read_again_at_ = {};
}

}  // namespace oarlock::kube
