// What one rank measured about itself. The marks are CLOCK_MONOTONIC, which all processes of a machine share, and
// beside them the processor time that this one has used, all its threads together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace oarlock::bench {

class StepRecord {
 public:
  explicit StepRecord(size_t expected) {
    marks_.reserve(expected);
    cpu_marks_.reserve(expected);
  }

  void mark();  // a training step begins

  // {"marks_ns": [...], "cpu_marks_ns": [...], "peak_rss_kb": n, "minor_faults": n}. Throws std::runtime_error.
  void write(const std::string& path) const;

 private:
  std::vector<int64_t> marks_;
  std::vector<int64_t> cpu_marks_;
};

}  // namespace oarlock::bench
