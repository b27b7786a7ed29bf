#include "common/contract.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json_access.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

constexpr size_t kReasonLimit = 60;  // bytes
constexpr char kInPodRestarts[] = "inPodRestarts";
constexpr char kUsageSeconds[] = "usageSeconds";
constexpr int kMaxRank = 999'999;
constexpr size_t kMaxPhase = 60;        // bytes
constexpr size_t kMaxMetricName = 128;  // bytes
constexpr int kReportDepth = 4;

// Assigns the field to `target` if it is present, has the right type and is in range.
template <typename T>
void read(const Json& json, const char* key, T& target) {
  if (const auto it = json.find(key); it != json.end()) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (it->is_string()) target = it->get<std::string>();
    } else if constexpr (std::is_integral_v<T>) {
      if (it->is_number_unsigned() ? std::in_range<T>(it->get<uint64_t>())
                                   : it->is_number_integer() && std::in_range<T>(it->get<int64_t>())) {
        target = it->get<T>();
      }
    } else {
      if (it->is_number()) target = it->get<double>();
    }
  }
}

Json json_of(const InPodRestarts& restarts) {
  return {
      {"total", restarts.total}, {"seconds", restarts.seconds}, {"rank", restarts.rank}, {"reason", restarts.reason}};
}

Json json_of(const UsageSeconds& seconds) {
  Json json = Json::object();
  for (const UsageClass one : kReportedUsageClasses) {
    if (seconds[one] > 0 && std::isfinite(seconds[one])) json[std::string(name_of(one))] = seconds[one];
  }
  return json;
}

std::optional<UsageSeconds> usage_seconds_in(const Json& status) {
  const auto it = status.find(kUsageSeconds);
  if (it == status.end() || !it->is_object()) return std::nullopt;
  UsageSeconds out;
  for (const UsageClass one : kReportedUsageClasses) read(*it, std::string(name_of(one)).c_str(), out[one]);
  return out;
}

Json json_of(const RankActivity& rank) {
  Json json = {{"rank", rank.rank}};
  if (rank.step) json["step"] = *rank.step;
  if (!rank.updated_at.empty()) json["updatedAt"] = rank.updated_at;
  if (rank.pid > 0) json["pid"] = rank.pid;
  if (!rank.program.empty()) json["program"] = rank.program;
  if (!rank.state.empty()) json["state"] = rank.state;
  if (!rank.wait_channel.empty()) json["waitChannel"] = rank.wait_channel;
  return json;
}

// Replaces the constants that Python's json module writes for numbers that are not finite.
std::string without_constants(std::string_view json) {
  constexpr std::string_view kConstants[] = {"NaN", "-Infinity", "Infinity"};
  std::string out;
  for (bool is_in_string = false; !json.empty();) {
    const auto* constant =
        std::ranges::find_if(kConstants, [&](std::string_view one) { return json.starts_with(one); });
    if (!is_in_string && constant != std::end(kConstants)) {
      out += "null";
      json.remove_prefix(constant->size());
      continue;
    }
    const size_t taken = is_in_string && json[0] == '\\' ? std::min<size_t>(2, json.size()) : 1;
    if (json[0] == '"') is_in_string = !is_in_string;
    out += json.substr(0, taken);
    json.remove_prefix(taken);
  }
  return out;
}

std::optional<double> finite_number(const Json& json) {
  if (!json.is_number() || !std::isfinite(json.get<double>())) return std::nullopt;
  return json.get<double>();
}

// Python programs may write a count as 10.0.
std::optional<int64_t> count_at(const Json& json, const char* key, int64_t max) {
  const std::optional<double> number = finite_number(member(json, key));
  if (!number || *number < 0 || *number > static_cast<double>(max) || *number != std::floor(*number))
    return std::nullopt;
  return json[key].is_number_float() ? static_cast<int64_t>(*number) : integer_at<int64_t>(json, key, 0);
}

std::optional<InPodRestarts> in_pod_restarts_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  InPodRestarts restarts;
  read(json, "total", restarts.total);
  read(json, "seconds", restarts.seconds);
  read(json, "rank", restarts.rank);
  read(json, "reason", restarts.reason);
  return restarts.total > 0 ? std::optional(restarts) : std::nullopt;
}

std::optional<InPodRestarts> in_pod_restarts_in(const Json& status) {
  const auto it = status.find(kInPodRestarts);
  return it == status.end() ? std::nullopt : in_pod_restarts_of(*it);
}

}  // namespace

std::string to_json(const TerminationMessage& message) {
  Json json = {{"rank", message.rank},
               {"checkpointStep", message.checkpoint_step},
               {"reason", message.reason.substr(0, kReasonLimit)},
               {"message", message.message}};
  if (message.step >= 0) json["step"] = message.step;
  std::string text = dump_json(json);
  // The encoded size of a character varies because of escapes, so truncate until the object fits.
  for (std::string shortened = message.message; text.size() > kTerminationMessageLimit && !shortened.empty();) {
    const size_t excess = text.size() - kTerminationMessageLimit + 3;
    shortened.resize(shortened.size() - std::min(shortened.size(), std::max<size_t>(excess / 6, 1)));
    while (!shortened.empty() && (static_cast<unsigned char>(shortened.back()) & 0xC0) == 0x80) shortened.pop_back();
    if (!shortened.empty() && static_cast<unsigned char>(shortened.back()) >= 0xC0) shortened.pop_back();
    json["message"] = shortened + "...";
    text = dump_json(json);
  }
  return text;
}

std::optional<TerminationMessage> termination_message_from_json(std::string_view text) {
  const Json json = parse_untrusted_json(text);
  if (!json.is_object() || !json.contains("rank") || !json.contains("checkpointStep")) return std::nullopt;
  if (const auto reason = json.find("reason"); reason == json.end() || !reason->is_string()) return std::nullopt;
  TerminationMessage message;
  read(json, "rank", message.rank);
  read(json, "step", message.step);
  message.step = std::max<int64_t>(message.step, -1);
  read(json, "checkpointStep", message.checkpoint_step);
  read(json, "reason", message.reason);
  read(json, "message", message.message);
  return message;
}

bool reports_completion(std::string_view text) {
  const std::optional<TerminationMessage> message = termination_message_from_json(text);
  return message && message->reason == kReasonCompleted;
}

std::string to_json(const InPodRestarts& restarts) { return dump_json(json_of(restarts)); }

std::optional<InPodRestarts> in_pod_restarts_from_json(std::string_view text) {
  return in_pod_restarts_of(parse_untrusted_json(text));
}

std::string to_json(const LauncherStatus& status, const std::vector<RankActivity>& ranks) {
  Json json = {{"attempt", status.attempt}, {kInPodRestarts, json_of(status.in_pod_restarts)}};
  for (const RankActivity& rank : ranks) json["ranks"].push_back(json_of(rank));
  return dump_json(json);
}

std::optional<LauncherStatus> launcher_status_from_json(std::string_view text) {
  const Json json = parse_untrusted_json(text);
  if (!json.is_object()) return std::nullopt;
  const std::optional<InPodRestarts> restarts = in_pod_restarts_in(json);
  if (!restarts) return std::nullopt;
  LauncherStatus status{.in_pod_restarts = *restarts};
  read(json, "attempt", status.attempt);
  return status;
}

std::string to_json(const RankStatus& status, const std::vector<RankActivity>& ranks) {
  Json json = {{"rank", status.rank},
               {"worldSize", status.world_size},
               {"attempt", status.attempt},
               {"phase", status.phase},
               {"step", status.step},
               {"targetSteps", status.target_steps},
               {"checkpointStep", status.checkpoint_step},
               {"lastStepSeconds", status.last_step_seconds},
               {"samplesPerSecond", status.samples_per_second},
               {"collectiveSequence", status.collective_sequence},
               {"updatedAt", status.updated_at}};
  if (status.loss && std::isfinite(*status.loss)) json["loss"] = *status.loss;
  if (status.recoveries > 0) {
    json["recoveries"] = status.recoveries;
    json["recoverySeconds"] = status.recovery_seconds;
    json["recoveredRanks"] = status.recovered_ranks;
    json["recoveryReason"] = status.recovery_reason;
  }
  if (status.in_pod_restarts) json[kInPodRestarts] = json_of(*status.in_pod_restarts);
  if (status.usage_seconds) json[kUsageSeconds] = json_of(*status.usage_seconds);
  for (const RankActivity& rank : ranks) json["ranks"].push_back(json_of(rank));
  return dump_json(json);
}

std::optional<RankStatus> rank_status_from_json(std::string_view text) {
  const Json json = parse_untrusted_json(text);
  if (!json.is_object() || !json.contains("rank") || !json.contains("step")) return std::nullopt;
  RankStatus status;
  read(json, "rank", status.rank);
  read(json, "worldSize", status.world_size);
  read(json, "attempt", status.attempt);
  read(json, "phase", status.phase);
  read(json, "step", status.step);
  read(json, "targetSteps", status.target_steps);
  read(json, "checkpointStep", status.checkpoint_step);
  read(json, "lastStepSeconds", status.last_step_seconds);
  read(json, "samplesPerSecond", status.samples_per_second);
  read(json, "collectiveSequence", status.collective_sequence);
  read(json, "recoveries", status.recoveries);
  read(json, "recoverySeconds", status.recovery_seconds);
  read(json, "recoveredRanks", status.recovered_ranks);
  read(json, "recoveryReason", status.recovery_reason);
  read(json, "updatedAt", status.updated_at);
  status.in_pod_restarts = in_pod_restarts_in(json);
  status.usage_seconds = usage_seconds_in(json);
  if (const auto it = json.find("loss"); it != json.end() && it->is_number()) status.loss = it->get<double>();
  return status;
}

std::vector<RankActivity> rank_activities_from_json(std::string_view text, size_t limit) {
  const Json json = parse_untrusted_json(text);
  const auto activity = [](const Json& object) {
    RankActivity out;
    read(object, "rank", out.rank);
    if (const auto step = object.find("step"); step != object.end() && step->is_number_integer())
      out.step = step->get<int64_t>();
    read(object, "updatedAt", out.updated_at);
    read(object, "pid", out.pid);
    read(object, "program", out.program);
    read(object, "state", out.state);
    read(object, "waitChannel", out.wait_channel);
    return out;
  };
  std::vector<RankActivity> out;
  if (!json.is_object()) return out;
  for (const Json& rank : elements(json, "ranks")) {
    if (rank.is_object() && out.size() < limit) out.push_back(activity(rank));
  }
  if (out.empty() && json.contains("rank") && json.contains("step") && limit > 0) out.push_back(activity(json));
  return out;
}

std::string to_json(ProgressReport report) {
  Json json = Json::object();
  const auto write = [&json](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  write("rank", report.rank);
  write("step", report.step);
  write("targetSteps", report.target_steps);
  write("checkpointStep", report.checkpoint_step);
  write("loss", report.loss);
  write("samplesPerSecond", report.samples_per_second);
  if (!report.phase.empty()) json["phase"] = report.phase.substr(0, kMaxPhase);
  for (;;) {
    if (report.metrics.empty()) {
      json.erase("metrics");
    } else {
      json["metrics"] = report.metrics;
    }
    std::string line = dump_json(json);
    if (line.size() < kProgressLineLimit || report.metrics.empty()) return line;
    report.metrics.erase(std::prev(report.metrics.end()));
  }
}

std::optional<ProgressReport> progress_report_from_json(std::string_view text) {
  Json json = parse_untrusted_json(text, kProgressLineLimit, kReportDepth);
  if (json.is_discarded()) json = parse_untrusted_json(without_constants(text), kProgressLineLimit, kReportDepth);
  if (!json.is_object()) return std::nullopt;
  constexpr int64_t kMaxStep = int64_t{1} << 53;  // larger integers are not exact in JSON
  ProgressReport report;
  report.rank = count_at(json, "rank", kMaxRank);
  report.step = count_at(json, "step", kMaxStep);
  report.target_steps = count_at(json, "targetSteps", kMaxStep);
  report.checkpoint_step = count_at(json, "checkpointStep", kMaxStep);
  report.loss = finite_number(member(json, "loss"));
  report.samples_per_second = finite_number(member(json, "samplesPerSecond"));
  if (report.samples_per_second && *report.samples_per_second < 0) report.samples_per_second.reset();
  const std::string phase = text_at(json, "phase");
  if (phase.size() <= kMaxPhase && is_printable(phase)) report.phase = phase;
  if (const Json& metrics = member(json, "metrics"); metrics.is_object()) {
    for (const auto& [name, value] : metrics.items()) {
      const std::optional<double> number = finite_number(value);
      const bool is_valid = number && !name.empty() && name.size() <= kMaxMetricName && is_printable(name);
      if (is_valid && report.metrics.size() < kMaxReportedMetrics) report.metrics.emplace(name, *number);
    }
  }
  return report;
}

}  // namespace oarlock
