#include "yaml/writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "yaml/reader.h"

namespace oarlock::yaml {
namespace {

using Json = nlohmann::json;

TEST(ToYaml, MatchesStyleOfKubectl) {
  const Json pod = {
      {"kind", "Pod"},
      {"spec",
       {{"containers", {{{"name", "a"}, {"args", {"x", "1"}}, {"ports", Json::array()}}, {{"name", "b"}}}},
        {"nodeSelector", Json::object()}}}};
  EXPECT_EQ(to_yaml(pod), R"(kind: Pod
spec:
  containers:
  - args:
    - x
    - "1"
    name: a
    ports: []
  - name: b
  nodeSelector: {}
)");
}

TEST(ToYaml, RoundTrips) {
  const Json values = Json::parse(R"J([
    "plain", "", "true", "No", "null", "~", "1", "1e3", "0x1f", "-", "- a", "a: b", "a #b", "#", "{", "[x]", "*", "&a", "!t", "%", "@", "`", "'", "\"", "\\",
    "two\nlines\n", " leading", "trailing ", "tab\there", "\u0001", "ümlaut", "日本", "/path/to", "a/b:c", "2026-11-21", "2026-11-21T10:00:00Z", ".inf", "=", "<<", "y", "on",
    1, -1, 1.5, 1e-7, 1e300, true, false, null, [], {}, [[1, [2]], []], [{"a": [{"b": {}}]}], {"on": 1, "a b": {"": [[]]}, "1": null}
  ])J");
  for (const Json& value : values) {
    const Json document = {{"key", value}, {"list", {value, value}}};
    const auto parsed = parse_all(to_yaml(document), "x");
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message << "\n" << to_yaml(document);
    EXPECT_EQ(parsed->front().to_json(), document) << to_yaml(document);
  }
}

TEST(ToYaml, KeepsOrderAndNonFiniteNumbers) {
  const nlohmann::ordered_json value = {{"z", INFINITY}, {"a", {{"c", -INFINITY}, {"b", NAN}}}};
  EXPECT_EQ(to_yaml(value), "z: .inf\na:\n  c: -.inf\n  b: .nan\n");
}

}  // namespace
}  // namespace oarlock::yaml
