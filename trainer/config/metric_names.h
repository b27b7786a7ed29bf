// The names of a run's metrics in the experiment trackers: tracking.names.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock {

// Replaces Oarlock's names of metrics, texts, images and histograms, so that dashboards made for another program show
// the run. Other names are unchanged.
class MetricNames {
 public:
  MetricNames() = default;

  // Reads a JSON object of strings: {"loss": "train/loss", "eval/": "val/"}. A key that ends with '/' replaces the
  // beginning of the names that begin with it. A whole name takes precedence over a beginning, and a longer beginning
  // over a shorter one. An empty text is an empty object. Fails with kConfig and a message without the place.
  static Result<MetricNames> parse(std::string_view json);

  bool is_empty() const { return names_.empty() && beginnings_.empty(); }

  // Returns the name in the trackers.
  std::string of(const std::string& name) const;

 private:
  std::map<std::string, std::string, std::less<>> names_;
  std::map<std::string, std::string, std::less<>> beginnings_;
};

}  // namespace oarlock
