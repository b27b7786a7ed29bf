// What one rank measured about itself. The marks are CLOCK_MONOTONIC, which all processes of a machine share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace oarlock::bench {

class StepRecord {
 public:
  explicit StepRecord(size_t expected) { marks_.reserve(expected); }

  void mark();  // a training step begins

  // {"marks_ns": [...], "peak_rss_kb": n, "rss_kb": n, "minor_faults": n, "cpu_seconds": x}. Throws std::runtime_error.
  void write(const std::string& path) const;

 private:
  std::vector<int64_t> marks_;
};

}  // namespace oarlock::bench
