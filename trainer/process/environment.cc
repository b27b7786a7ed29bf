#include "trainer/process/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>

#include "common/contract.h"

namespace oarlock {
namespace {

constexpr int kMaxPort = 65535;

// Remembers the first problem, so that the rules below read as a list.
class Reader {
 public:
  explicit Reader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(std::string_view name) const {
    std::optional<std::string> value = lookup_(name);
    if (value && value->empty()) value.reset();
    return value;
  }

  bool has(std::string_view name) const { return text(name).has_value(); }

  std::optional<int> integer(std::string_view name, int low, int high) {
    const std::optional<std::string> value = text(name);
    if (!value) return std::nullopt;
    int number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    const bool whole = error == std::errc() && end == value->data() + value->size();
    if (whole && number >= low && number <= high) return number;
    const std::string range = high == std::numeric_limits<int>::max() ? fmt::format("of at least {}", low)
                                                                      : fmt::format("from {} to {}", low, high);
    problem(fmt::format("{}='{}' is not an integer {}; correct it or unset it", name, *value, range));
    return std::nullopt;
  }

  void problem(std::string message) {
    if (!error_) error_ = Error{ExitCode::kConfig, "environment: " + std::move(message)};
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  const EnvironmentLookup& lookup_;
  std::optional<Error> error_;
};

constexpr int kUnbounded = std::numeric_limits<int>::max();

// The bare names of PyTorch's env:// rendezvous. Other sources of the same numbers (a batch system's variables) belong
// beside this function; read_environment() tries one after the other.
void read_bare(Reader& reader, RankEnvironment& out) {
  const std::optional<int> world_size = reader.integer(kEnvWorldSize, 1, kUnbounded);
  const std::optional<int> rank = reader.integer(kEnvRank, 0, kUnbounded);
  const std::optional<int> local_world_size = reader.integer(kEnvLocalWorldSize, 1, kUnbounded);
  const std::optional<int> local_rank = reader.integer(kEnvLocalRank, 0, kUnbounded);
  out.world_size = world_size.value_or(1);
  out.rank = rank.value_or(0);
  out.local_world_size = local_world_size.value_or(1);
  out.local_rank = local_rank.value_or(0);
  out.node_rank = reader.integer(kEnvNodeRank, 0, kUnbounded).value_or(0);

  if (!reader.has(kEnvWorldSize) && reader.has(kEnvRank)) {
    reader.problem(
        fmt::format("{} is not set although {}={} is; set it to the number of ranks, or unset both to run alone",
                    kEnvWorldSize, kEnvRank, out.rank));
  }
  if (out.world_size > 1 && !reader.has(kEnvRank)) {
    reader.problem(fmt::format("{} is not set although {}={}; set it to 0 .. {}, a different one for each process",
                               kEnvRank, kEnvWorldSize, out.world_size, out.world_size - 1));
  }
  if (out.rank >= out.world_size) {
    reader.problem(fmt::format("{}={} is not below {}={}; ranks are numbered from 0, so the last is {}", kEnvRank,
                               out.rank, kEnvWorldSize, out.world_size, out.world_size - 1));
  }
  if (!reader.has(kEnvLocalWorldSize) && out.local_rank > 0) {
    reader.problem(fmt::format("{} is not set although {}={} is; set it to the number of ranks on this node",
                               kEnvLocalWorldSize, kEnvLocalRank, out.local_rank));
  }
  if (out.local_world_size > 1 && !reader.has(kEnvLocalRank)) {
    reader.problem(
        fmt::format("{} is not set although {}={}; set it to 0 .. {}, a different one for each process of the node",
                    kEnvLocalRank, kEnvLocalWorldSize, out.local_world_size, out.local_world_size - 1));
  }
  if (out.local_rank >= out.local_world_size) {
    reader.problem(fmt::format("{}={} is not below {}={}; local ranks are numbered from 0, so the last is {}",
                               kEnvLocalRank, out.local_rank, kEnvLocalWorldSize, out.local_world_size,
                               out.local_world_size - 1));
  }
  if (out.local_world_size > out.world_size) {
    reader.problem(fmt::format("{}={} is more than {}={}; a node cannot have more ranks than the job",
                               kEnvLocalWorldSize, out.local_world_size, kEnvWorldSize, out.world_size));
  }
}

void read_master(Reader& reader, RankEnvironment& out) {
  const std::optional<int> port = reader.integer(kEnvMasterPort, 1, kMaxPort);
  if (out.world_size == 1) return;  // nobody to meet
  out.master_addr = reader.text(kEnvMasterAddr).value_or("");
  out.master_port = port.value_or(0);
  if (out.master_addr.empty()) {
    reader.problem(fmt::format("{} is not set although {}={}; set it to the host name or address of rank 0",
                               kEnvMasterAddr, kEnvWorldSize, out.world_size));
  }
  if (!reader.has(kEnvMasterPort)) {
    reader.problem(fmt::format("{} is not set although {}={}; set it to a free TCP port of rank 0's host, such as {}",
                               kEnvMasterPort, kEnvWorldSize, out.world_size, kDefaultMasterPort));
  }
}

void read_oarlock(Reader& reader, RankEnvironment& out) {
  out.job = reader.text(kEnvJob).value_or("");
  out.job_namespace = reader.text(kEnvNamespace).value_or("");
  out.uid = reader.text(kEnvUid).value_or("");
  out.attempt = reader.integer(kEnvAttempt, 0, kUnbounded).value_or(0);
  out.config = reader.text(kEnvConfig);
  out.checkpoint_dir = reader.text(kEnvCheckpointDir);
  out.termination_log = reader.text(kEnvTerminationLog);
  out.metrics_port = reader.integer(kEnvMetricsPort, 0, kMaxPort);
}

}  // namespace

EnvironmentLookup process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<RankEnvironment> read_environment(const EnvironmentLookup& lookup) {
  RankEnvironment out;
  Reader reader(lookup);
  read_bare(reader, out);
  read_master(reader, out);
  read_oarlock(reader, out);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  return out;
}

}  // namespace oarlock
