// Remembered answers of token reviews, of bounded number. A key is a digest, so neither tokens nor long texts are held.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"

namespace oarlock::control {

// SHA-256 over the parts, each preceded by its length.
std::string verdict_key(std::string_view path, std::string_view token);

// Not thread-safe.
class VerdictCache {
 public:
  struct Verdict {
    int status = 0;            // HTTP
    SteadyTime fresh_until{};  // no review is needed before
    SteadyTime until{};        // the verdict is forgotten then
  };

  // Above `limit` entries, the one that would be forgotten first is removed.
  explicit VerdictCache(size_t limit) : limit_(limit) {}

  // Absent: unknown, or forgotten by `now`.
  std::optional<Verdict> find(const std::string& key, SteadyTime now) const;
  void put(const std::string& key, const Verdict& verdict, SteadyTime now);
  void erase(const std::string& key) { verdicts_.erase(key); }
  size_t size() const { return verdicts_.size(); }

 private:
  const size_t limit_;
  std::map<std::string, Verdict> verdicts_;
};

}  // namespace oarlock::control
