#include "http/metrics.h"

#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"

namespace oarlock {
namespace {

prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type, double value) {
  prometheus::MetricFamily out{name, help, type, {}};
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  out.metric.push_back(metric);
  return out;
}

// Seconds since the epoch at which the machine booted; 0 if unknown.
double boot_time() {
  std::ifstream stat("/proc/stat");
  for (std::string key; stat >> key; stat.ignore(1 << 20, '\n')) {
    double value = 0;
    if (key == "btime" && stat >> value) return value;
  }
  return 0;
}

// proc(5): /proc/self/stat, fields from the 3rd on (the 2nd, the name, may hold spaces).
std::vector<std::string> stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream rest(line.substr(line.rfind(')') + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

std::vector<prometheus::MetricFamily> process_families() {
  using Type = prometheus::MetricType;
  std::vector<prometheus::MetricFamily> out;
  const std::vector<std::string> fields = stat_fields();
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (fields.size() >= 22) {
    const double cpu = (std::stod(fields[11]) + std::stod(fields[12])) / ticks;
    out.push_back(
        family("process_cpu_seconds_total", "User and system CPU time spent in seconds.", Type::Counter, cpu));
    out.push_back(family("process_start_time_seconds", "Start time of the process since the epoch in seconds.",
                         Type::Gauge, boot_time() + std::stod(fields[19]) / ticks));
    out.push_back(
        family("process_virtual_memory_bytes", "Virtual memory size in bytes.", Type::Gauge, std::stod(fields[20])));
    out.push_back(family("process_resident_memory_bytes", "Resident memory size in bytes.", Type::Gauge,
                         std::stod(fields[21]) * static_cast<double>(sysconf(_SC_PAGESIZE))));
  }
  double open_fds = 0;
  visit_directory("/proc/self/fd", [&open_fds](const auto&) { ++open_fds; });
  out.push_back(family("process_open_fds", "Number of open file descriptors.", Type::Gauge, open_fds));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    out.push_back(family("process_max_fds", "Maximum number of open file descriptors.", Type::Gauge,
                         static_cast<double>(limit.rlim_cur)));
  }
  return out;
}

}  // namespace

HttpHandler metrics_handler(std::shared_ptr<prometheus::Registry> registry, FamilySource computed) {
  return [registry = std::move(registry), computed = std::move(computed),
          rendering = std::make_shared<std::mutex>()](const std::string&) {
    const std::lock_guard lock(*rendering);
    const prometheus::TextSerializer serializer;
    std::ostringstream text;
    serializer.Serialize(text, process_families());
    serializer.Serialize(text, registry->Collect());
    if (computed) {
      computed([&](prometheus::MetricFamily family) {
        std::vector<prometheus::MetricFamily> one;
        one.push_back(std::move(family));
        serializer.Serialize(text, one);
      });
    }
    return HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8", std::move(text).str()};
  };
}

}  // namespace oarlock
