// The reference pages of metrics, docs/metrics-*.md, which are generated from the metrics that a program exports.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace oarlock::test {

// Fails the test if docs/<file> differs from the page for these families, which a test program that runs with --update
// writes first. Families and labels without series are not exported, so the caller must produce at least one series for
// each.
void expect_metrics_page(const std::string& file, const std::string& title,
                         std::vector<prometheus::MetricFamily> families);

}  // namespace oarlock::test
