#include "tests/bench/trainer/record.h"

#include <sys/resource.h>
#include <time.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace oarlock::bench {
namespace {

int64_t status_kb(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1));
  }
  return 0;
}

int64_t nanoseconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

void StepRecord::mark() {
  marks_.push_back(nanoseconds(CLOCK_MONOTONIC));
  cpu_marks_.push_back(nanoseconds(CLOCK_PROCESS_CPUTIME_ID));
}

void StepRecord::write(const std::string& path) const {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const nlohmann::json json = {{"marks_ns", marks_},
                               {"cpu_marks_ns", cpu_marks_},
                               {"peak_rss_kb", status_kb("VmHWM")},
                               {"minor_faults", usage.ru_minflt}};
  std::ofstream out(path);
  out << json;
  if (!out.flush()) throw std::runtime_error("the record could not be written to " + path);
}

}  // namespace oarlock::bench
