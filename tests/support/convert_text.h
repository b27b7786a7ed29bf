// Conversion of jobs of other operators that a test holds as text.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/convert/converters.h"

namespace oarlock::convert {

// Converts the documents of a text.
inline Result<std::vector<Converted>> convert_text(const std::string& text, const ConvertOptions& options = {}) {
  const auto documents = yaml::parse_all(text, "job.yaml");
  if (!documents) return tl::make_unexpected(documents.error());
  std::vector<SourceDocument> sources;
  for (const yaml::Node& root : *documents) sources.push_back({root, "job.yaml"});
  return convert_kubernetes(sources, options);
}

// Converts a text of one job, and fails the test if it cannot be converted.
inline Converted only_job(const std::string& text, const ConvertOptions& options = {}) {
  Result<std::vector<Converted>> jobs = convert_text(text, options);
  EXPECT_TRUE(jobs) << jobs.error().message;
  return jobs && jobs->size() == 1 ? jobs->front() : Converted();
}

}  // namespace oarlock::convert
