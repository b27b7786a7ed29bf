// The measurements of one rank. Timestamps are CLOCK_MONOTONIC, which all processes of a machine share, together with
// the CPU time of all threads of the process.
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
