#include "tests/support/metrics_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

namespace oarlock::test {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

const char* name_of(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Histogram:
      return "histogram";
    default:
      return "untyped";
  }
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string row_of(const MetricFamily& family) {
  std::set<std::string> labels;
  for (const prometheus::ClientMetric& metric : family.metric) {
    for (const auto& label : metric.label) labels.insert("`" + label.name + "`");
  }
  return fmt::format("| `{}` | {} | {} | {} |\n", family.name, name_of(family.type), fmt::join(labels, ", "),
                     family.help);
}

}  // namespace

void expect_metrics_page(const std::string& file, const std::string& title, std::vector<MetricFamily> families) {
  std::sort(families.begin(), families.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::string page = "# " + title +
                     "\n\nWritten by a test from what the program exports; `process_*` are those of every Prometheus "
                     "client.\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n";
  for (const MetricFamily& family : families) page += row_of(family);
  const std::string path = OARLOCK_SOURCE "/docs/" + file;
  if (std::getenv("OARLOCK_UPDATE_DOCS") != nullptr) std::ofstream(path) << page;
  EXPECT_EQ(content(path), page) << "run this test with OARLOCK_UPDATE_DOCS=1 to write docs/" << file;
}

}  // namespace oarlock::test
