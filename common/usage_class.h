// What the accelerators of a job do at a time. The operator divides the time of all allocated accelerators among these
// classes (operator/core/ledger.h); rank 0 or its launcher reports the part that no other process observes
// (RankStatus). docs/guides/goodput.md defines them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace oarlock {

enum class UsageClass : size_t {
  kScheduling,
  kPulling,
  kStarting,
  kRendezvous,
  kRestore,
  kProductive,
  kRecomputed,
  kCheckpoint,
  kEvaluation,
  kStalled,
  kRecovery,
  kUnreported,
  kIdle,
};

// The names in the status of a job, in metrics and in /statusz, indexed by UsageClass.
inline constexpr std::array<std::string_view, 13> kUsageClasses = {
    "scheduling", "pulling",    "starting", "rendezvous", "restore",    "productive", "recomputed",
    "checkpoint", "evaluation", "stalled",  "recovery",   "unreported", "idle"};

constexpr std::string_view name_of(UsageClass one) { return kUsageClasses[static_cast<size_t>(one)]; }

// The classes that a rank or its launcher reports.
inline constexpr std::array<UsageClass, 8> kReportedUsageClasses = {
    UsageClass::kStarting,   UsageClass::kRendezvous, UsageClass::kRestore,    UsageClass::kProductive,
    UsageClass::kRecomputed, UsageClass::kCheckpoint, UsageClass::kEvaluation, UsageClass::kRecovery};

// Returns the class of a phase that a rank reports (RankStatus::phase); absent if it has none.
constexpr std::optional<UsageClass> usage_class_of(std::string_view phase) {
  constexpr std::pair<std::string_view, UsageClass> kPhases[] = {{"rendezvous", UsageClass::kRendezvous},
                                                                 {"restore", UsageClass::kRestore},
                                                                 {"eval", UsageClass::kEvaluation},
                                                                 {"checkpoint", UsageClass::kCheckpoint},
                                                                 {"train", UsageClass::kProductive}};
  for (const auto& [name, one] : kPhases) {
    if (name == phase) return one;
  }
  return std::nullopt;
}

// Returns which part of the time between the reports of two steps is that of steps up to `highest`, which are repeated.
inline double recomputed_share(int64_t from, int64_t to, int64_t highest) {
  if (to <= from) return to < highest ? 1 : 0;
  const double repeated = static_cast<double>(std::min(to, highest)) - static_cast<double>(from);
  return std::clamp(repeated / (static_cast<double>(to) - static_cast<double>(from)), 0.0, 1.0);
}

// A value for each class, such as a time.
template <typename Value>
class ByUsageClass {
 public:
  Value& operator[](UsageClass one) { return values_[static_cast<size_t>(one)]; }
  const Value& operator[](UsageClass one) const { return values_[static_cast<size_t>(one)]; }
  Value sum() const {
    Value out{};
    for (const Value& value : values_) out += value;
    return out;
  }

  bool operator==(const ByUsageClass&) const = default;

 private:
  std::array<Value, kUsageClasses.size()> values_{};
};

using UsageSeconds = ByUsageClass<double>;
using UsageMilliseconds = ByUsageClass<int64_t>;

}  // namespace oarlock
