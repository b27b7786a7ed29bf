#include "tests/bench/trainer/record.h"

#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
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

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

void StepRecord::mark() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  marks_.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

void StepRecord::write(const std::string& path) const {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const nlohmann::json json = {{"marks_ns", marks_},
                               {"peak_rss_kb", status_kb("VmHWM")},
                               {"rss_kb", status_kb("VmRSS")},
                               {"minor_faults", usage.ru_minflt},
                               {"cpu_seconds", seconds(usage.ru_utime) + seconds(usage.ru_stime)}};
  std::ofstream out(path);
  out << json;
  if (!out.flush()) throw std::runtime_error("the record could not be written to " + path);
}

}  // namespace oarlock::bench
