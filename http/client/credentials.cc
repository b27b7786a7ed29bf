#include "http/client/credentials.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "common/files.h"
#include "common/text.h"

namespace oarlock::http {
namespace {

constexpr auto kReadInterval = std::chrono::minutes(1);

}  // namespace

Result<std::string> FileToken::token() {
  const std::lock_guard lock(mutex_);
  if (!token_.empty() && clock_->steady() < read_again_at_) return token_;
  const Result<std::string> text = read_regular_file(path_, kMaxCredentialFileBytes);
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

std::string base64_encode(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL appends a zero byte
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(size));
  return out;
}

Result<std::string> base64_decode(std::string_view text) {
  std::string compact;
  for (const char c : text) {
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') compact += c;
  }
  std::string out(compact.size() / 4 * 3 + 3, '\0');
  const int size =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                      reinterpret_cast<const unsigned char*>(compact.data()), static_cast<int>(compact.size()));
  if (size < 0 || compact.size() % 4 != 0) return fail(ExitCode::kConfig, "not base64");
  size_t padding = 0;  // EVP_DecodeBlock counts it as zero bytes
  while (padding < 2 && padding < compact.size() && compact[compact.size() - 1 - padding] == '=') ++padding;
  out.resize(static_cast<size_t>(size) - padding);
  return out;
}

}  // namespace oarlock::http
