#include "cli/cluster/rank_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/text.h"

namespace oarlock::cli {
namespace {

struct Sample {
  std::string_view name;
  std::string_view labels;
  double value = 0;
};

// Reads "name{labels} value" or "name value"; nullopt for comments and anything else.
std::optional<Sample> parse_sample(std::string_view line) {
  if (line.empty() || line.front() == '#') return std::nullopt;
  const size_t name_end = line.find_first_of("{ ");
  if (name_end == std::string_view::npos) return std::nullopt;
  Sample sample;
  sample.name = line.substr(0, name_end);
  std::string_view rest = line.substr(name_end);
  if (rest.front() == '{') {
    const size_t close = rest.rfind('}');
    if (close == std::string_view::npos) return std::nullopt;
    sample.labels = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
  }
  rest = trim(rest);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), sample.value);
  if (error != std::errc() || !std::isfinite(sample.value)) return std::nullopt;
  return sample;
}

void add_to(std::optional<double>& sum, double value) { sum = sum.value_or(0) + value; }

const RankView* find_rank(const std::vector<RankView>& ranks, int rank) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&](const RankView& one) { return one.rank == rank; });
  return found == ranks.end() ? nullptr : &*found;
}

// The increase of a counter since `before`, or its value if there is no earlier one or the process was restarted.
std::optional<double> increase(const std::optional<double>& now, const std::optional<double>& before) {
  if (!now) return std::nullopt;
  return before && *before <= *now ? *now - *before : *now;
}

std::string step_time_text(const RankView& rank, const RankView* before) {
  static const RankMetrics kNothing;
  const RankMetrics& old = before == nullptr ? kNothing : before->metrics;
  const std::optional<double> steps = increase(rank.metrics.steps, old.steps);
  const std::optional<double> time = increase(rank.metrics.step_seconds, old.step_seconds);
  double mean = rank.status ? rank.status->last_step_seconds : 0;
  if (steps && time && *steps > 0) mean = *time / *steps;
  if (mean <= 0 || !std::isfinite(mean)) return "";
  return mean < 1 ? fmt::format("{:.3g}ms", mean * 1000) : fmt::format("{:.3g}s", mean);
}

std::string data_wait_text(const RankView& rank, const RankView* before) {
  static const RankMetrics kNothing;
  const RankMetrics& old = before == nullptr ? kNothing : before->metrics;
  const std::optional<double> wait = increase(rank.metrics.data_wait_seconds, old.data_wait_seconds);
  const std::optional<double> total = increase(rank.metrics.total_seconds, old.total_seconds);
  if (!wait || !total || *total <= 0) return "";
  return fmt::format("{:.0f}%", std::clamp(*wait / *total, 0.0, 1.0) * 100);
}

std::string memory_text(const RankMetrics& metrics) {
  if (metrics.device_memory_bytes && *metrics.device_memory_bytes > 0)
    return size_text(*metrics.device_memory_bytes) + " GPU";
  return metrics.resident_memory_bytes ? size_text(*metrics.resident_memory_bytes) : "";
}

}  // namespace

RankMetrics parse_rank_metrics(std::string_view text) {
  RankMetrics out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::optional<Sample> sample = parse_sample(trim(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!sample) continue;
    if (sample->name == "trainer_phase_seconds_total") {
      add_to(out.total_seconds, sample->value);
      if (sample->labels.find("phase=\"data_wait\"") != std::string_view::npos)
        add_to(out.data_wait_seconds, sample->value);
    } else if (sample->name == "trainer_steps_total") {
      add_to(out.steps, sample->value);
    } else if (sample->name == "trainer_step_duration_seconds_sum") {
      add_to(out.step_seconds, sample->value);
    } else if (sample->name == "trainer_device_memory_allocated_bytes") {
      add_to(out.device_memory_bytes, sample->value);
    } else if (sample->name == "process_resident_memory_bytes") {
      add_to(out.resident_memory_bytes, sample->value);
    }
  }
  return out;
}

Table rank_table(const std::vector<RankView>& ranks, const std::vector<RankView>& before, bool is_wide) {
  int64_t newest = 0;
  for (const RankView& rank : ranks) newest = std::max(newest, rank.status ? rank.status->step : 0);
  std::vector<std::string> headers = {"RANK",      "PHASE",  "STEP", "LAG", "STEP TIME",
                                      "DATA WAIT", "MEMORY", "LOSS", "NODE"};
  if (is_wide) {
    headers.emplace_back("POD");
    headers.emplace_back("UPDATED");
  }
  Table table(std::move(headers));
  for (const RankView& rank : ranks) {
    const RankView* old = find_rank(before, rank.rank);
    std::vector<Cell> row = {std::to_string(rank.rank)};
    if (rank.status) {
      const int64_t lag = newest - std::clamp<int64_t>(rank.status->step, 0, newest);
      row.emplace_back(shortened(rank.status->phase, 20), rank.status->phase == "failed" ? Color::kRed : Color::kGreen);
      row.emplace_back(std::to_string(rank.status->step));
      row.emplace_back(std::to_string(lag), lag > 1 ? Color::kYellow : Color::kNone);
    } else {
      row.emplace_back(rank.error.empty() ? rank.pod_state : rank.error, Color::kYellow);
      row.insert(row.end(), 2, Cell(""));
    }
    row.emplace_back(step_time_text(rank, old));
    row.emplace_back(data_wait_text(rank, old));
    row.emplace_back(memory_text(rank.metrics));
    row.emplace_back(rank.status && rank.status->loss ? number_text(*rank.status->loss) : "");
    row.emplace_back(rank.node);
    if (is_wide) {
      row.emplace_back(rank.pod);
      row.emplace_back(rank.status ? shortened(rank.status->updated_at, 40) : "");
    }
    table.add(std::move(row));
  }
  return table;
}

nlohmann::json rank_document(const RankView& rank) {
  nlohmann::json out = {{"rank", rank.rank}, {"pod", rank.pod}, {"node", rank.node}, {"podState", rank.pod_state}};
  if (!rank.error.empty()) out["error"] = rank.error;
  if (rank.status) out["status"] = nlohmann::json::parse(to_json(*rank.status), nullptr, false);
  const auto set = [&](const char* key, const std::optional<double>& value) {
    if (value) out["metrics"][key] = *value;
  };
  set("dataWaitSeconds", rank.metrics.data_wait_seconds);
  set("totalSeconds", rank.metrics.total_seconds);
  set("steps", rank.metrics.steps);
  set("stepSeconds", rank.metrics.step_seconds);
  set("deviceMemoryBytes", rank.metrics.device_memory_bytes);
  set("residentMemoryBytes", rank.metrics.resident_memory_bytes);
  return out;
}

}  // namespace oarlock::cli
