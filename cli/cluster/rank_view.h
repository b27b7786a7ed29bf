// The state of one rank, as its /statusz and /metrics report it, and the table of `oarlock top`. Pure functions; the
// documents come from pods, so that any bytes are accepted.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cluster/output.h"
#include "common/contract.h"

namespace oarlock::cli {

// Limits of the documents of a rank.
inline constexpr size_t kMaxStatusBytes = 64u << 10;
inline constexpr size_t kMaxMetricsBytes = 1u << 20;

// The metrics of a rank that the table shows. A metric that is absent or not a number is nullopt.
struct RankMetrics {
  std::optional<double> data_wait_seconds;  // since the start of the process
  std::optional<double> total_seconds;      // of all phases, since the start of the process
  std::optional<double> steps;              // of this process
  std::optional<double> step_seconds;       // sum of the durations of all steps
  std::optional<double> device_memory_bytes;
  std::optional<double> resident_memory_bytes;
};

// Reads the text format of Prometheus; lines that are not samples of these metrics are ignored.
RankMetrics parse_rank_metrics(std::string_view text);

struct RankView {
  int rank = 0;
  std::string pod;
  std::string node;
  std::string pod_state;             // shown instead of the phase if the rank does not respond
  std::optional<RankStatus> status;  // absent: no response
  RankMetrics metrics;
  std::string error;  // why there is no response
};

// Returns the table. `before` holds the previous views of the same ranks, in any order: step time and data wait are
// then those since that time; otherwise those since the start of the ranks.
Table rank_table(const std::vector<RankView>& ranks, const std::vector<RankView>& before, bool is_wide);

nlohmann::json rank_document(const RankView& rank);

}  // namespace oarlock::cli
