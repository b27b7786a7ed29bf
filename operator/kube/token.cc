#include "operator/kube/token.h"

#include <fmt/format.h>

#include "common/files.h"

namespace oarlock::kube {
namespace {

constexpr auto kReadEvery = std::chrono::minutes(1);

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

Result<std::string> FileToken::token() {
  const std::lock_guard lock(mutex_);
  if (!token_.empty() && clock_->steady() < read_again_) return token_;
  Result<std::string> text = read_file(path_);
  if (text) {
    std::string fresh = trimmed(*text);
    if (!fresh.empty()) {
      token_ = std::move(fresh);
      read_again_ = clock_->steady() + kReadEvery;
    }
  }
  if (!token_.empty()) return token_;
  if (!text) return tl::make_unexpected(text.error());
  return fail(ExitCode::kDataErr, fmt::format("{}: the token file is empty", path_));
}

void FileToken::drop() {
  const std::lock_guard lock(mutex_);
  read_again_ = {};
}

}  // namespace oarlock::kube
