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

std::string to_json(const LauncherStatus& status) {
  return dump_json({{"attempt", status.attempt}, {kInPodRestarts, json_of(status.in_pod_restarts)}});
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

std::string to_json(const RankStatus& status) {
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
  if (const auto it = json.find("loss"); it != json.end() && it->is_number()) status.loss = it->get<double>();
  return status;
}

}  // namespace oarlock
