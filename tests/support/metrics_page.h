// The reference pages of metrics, docs/metrics-*.md: written from what a program exports.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace oarlock::test {

// Fails where docs/<file> is not what these families say. With OARLOCK_UPDATE_DOCS in the environment it is written
// anew. A family without series is not among them, nor are the labels of series that there are none of: show them all.
void expect_metrics_page(const std::string& file, const std::string& title,
                         std::vector<prometheus::MetricFamily> families);

}  // namespace oarlock::test
