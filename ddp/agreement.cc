#include "ddp/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "common/text.h"

namespace oarlock {
namespace {

constexpr char kTask[] = "task";
constexpr size_t kMaxShown = 8;  // changes

// Whether other values may differ because this one does.
bool explains_others(std::string_view key) {
  return key == kVersionKey || key == kRevisionKey || key == kTask || key.ends_with(".samples");
}

// For messages.
std::string shown(const std::optional<std::string>& value) {
  if (!value) return "absent";
  return value->empty() ? "empty" : shortened(*value);
}

const char* remedy(AgreedKind kind, const std::string& key) {
  if (kind == AgreedKind::kData) return "give all ranks the same data";
  if (key == kVersionKey || key == kRevisionKey) return "run the same program on all ranks";
  return "give all ranks the same configuration";
}

std::string others(size_t count) {
  if (count == 0) return "";
  return count == 1 ? ", and 1 other value differs" : fmt::format(", and {} other values differ", count);
}

}  // namespace

std::vector<ValueDifference> differences(const AgreedValues& here, const AgreedValues& there) {
  std::vector<ValueDifference> out;
  for (const auto& [key, value] : here) {
    const auto other = there.find(key);
    if (other == there.end()) {
      out.push_back({key, value, std::nullopt});
    } else if (other->second != value) {
      out.push_back({key, value, other->second});
    }
  }
  for (const auto& [key, value] : there)
    if (!here.contains(key)) out.push_back({key, std::nullopt, value});
  std::sort(out.begin(), out.end(), [](const ValueDifference& a, const ValueDifference& b) {
    const bool a_first = explains_others(a.key);
    const bool b_first = explains_others(b.key);
    if (a_first != b_first) return a_first;
    if (a_first) return a.key > b.key;  // version, task, revision, samples
    const bool a_absent = !a.here || !a.there;
    const bool b_absent = !b.here || !b.there;
    return a_absent != b_absent ? b_absent : a.key < b.key;
  });
  return out;
}

Result<void> check_agreement(AgreedKind kind, int rank, const AgreedValues& values, const AgreedValues& of_rank_0) {
  if (values == of_rank_0) return {};
  const std::vector<ValueDifference> all = differences(values, of_rank_0);
  const ValueDifference& first = all.front();
  return fail(kind == AgreedKind::kData ? ExitCode::kDataErr : ExitCode::kConfig,
              fmt::format("the ranks differ: {} is {} on rank {}, but {} on rank 0{}; {}", first.key, shown(first.here),
                          rank, shown(first.there), others(all.size() - 1), remedy(kind, first.key)));
}

std::string changes(const AgreedValues& before, const AgreedValues& now) {
  const std::vector<ValueDifference> all = differences(before, now);
  std::vector<std::string> out;
  for (const ValueDifference& item : all) {
    if (out.size() == kMaxShown) break;
    out.push_back(fmt::format("{}: {} -> {}", item.key, shown(item.here), shown(item.there)));
  }
  if (all.size() > out.size()) out.push_back(fmt::format("and {} more", all.size() - out.size()));
  return fmt::format("{}", fmt::join(out, "; "));
}

}  // namespace oarlock
