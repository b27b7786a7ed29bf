#include "operator/shell/verdict_cache.h"

#include <openssl/evp.h>

#include <algorithm>
#include <stdexcept>

namespace oarlock::control {

std::string verdict_key(std::string_view path, std::string_view token) {
  const std::string text = std::to_string(path.size()) + ":" + std::string(path) + std::string(token);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("SHA-256 is not available");
  return {reinterpret_cast<const char*>(digest), size};
}

std::optional<VerdictCache::Verdict> VerdictCache::find(const std::string& key, SteadyTime now) const {
  const auto found = verdicts_.find(key);
  if (found == verdicts_.end() || found->second.until <= now) return std::nullopt;
  return found->second;
}

void VerdictCache::put(const std::string& key, const Verdict& verdict, SteadyTime now) {
  verdicts_.insert_or_assign(key, verdict);
  if (verdicts_.size() <= limit_) return;
  std::erase_if(verdicts_, [&](const auto& entry) { return entry.second.until <= now; });
  if (verdicts_.size() <= limit_) return;
  verdicts_.erase(std::ranges::min_element(verdicts_, {}, [](const auto& entry) { return entry.second.until; }));
}

}  // namespace oarlock::control
