#include "cli/run/local_job.h"

#include <gtest/gtest.h>

#include <map>

namespace oarlock::run {
namespace {

// The kubelet's own table, k8s.io/kubernetes/third_party/forked/golang/expansion/expand_test.go, in part.
TEST(Expand, MatchesKubelet) {
  const std::map<std::string, std::string> values = {
      {"VAR_A", "A"}, {"VAR_B", "B"}, {"VAR_C", "C"}, {"VAR_REF", "$(VAR_A)"}, {"VAR_EMPTY", ""}};
  const Lookup lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
  const std::map<std::string, std::string> table = {
      {"$(VAR_A)", "A"},
      {"___$(VAR_B)___", "___B___"},
      {"$(VAR_A)-1", "A-1"},
      {"$(VAR_A)_$(VAR_B)_$(VAR_C)", "A_B_C"},
      {"$(VAR_REF)", "$(VAR_A)"},
      {"f000-$(VAR_EMPTY)-b", "f000--b"},
      {"$$(VAR_A)", "$(VAR_A)"},
      {"$$$$(VAR_A)", "$$(VAR_A)"},
      {"$$$(VAR_A)", "$A"},
      {"$(VAR_UNKNOWN)", "$(VAR_UNKNOWN)"},
      {"$(VAR_A", "$(VAR_A"},
      {"$VAR_A", "$VAR_A"},
      {"foo$", "foo$"},
      {"foo$$", "foo$"},
      {"$()", "$()"},
      {"", ""},
      {"plain", "plain"},
      {"$\\(VAR_A)", "$\\(VAR_A)"},
  };
  for (const auto& [text, expected] : table) EXPECT_EQ(expand(text, lookup), expected) << text;
}

}  // namespace
}  // namespace oarlock::run
