#include "cli/launch/preflight_messages.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

using Json = nlohmann::json;

constexpr int kMaxPreflightDepth = 4;
constexpr int64_t kMaxTime = int64_t{1} << 53;  // ms, so that differences are in range
constexpr size_t kMaxText = 500;                // characters of a message of another node

// Returns the object that is the only member of the line; null if there is none of this name.
Json object_in(const std::string& line, const char* name) {
  return member(parse_untrusted_json(line, kMaxPreflightLine, kMaxPreflightDepth), name);
}

std::string line_of(const char* name, Json message) { return dump_json({{name, std::move(message)}}); }

std::string line_at(const Json& json, const char* key) { return shortened(text_at(json, key), kMaxText); }

}  // namespace

std::string clock_request() { return line_of("clock", true); }
bool is_clock_request(const std::string& line) { return object_in(line, "clock") == true; }

std::string to_json(const PreflightJoin& join) {
  Json failures = Json::array();
  for (const CheckFailure& failure : join.failures)
    failures.push_back({{"check", failure.check}, {"message", failure.message}});
  return line_of("join", {{"node", join.node},
                          {"port", join.port},
                          {"host", join.host},
                          {"time", join.time.count()},
                          {"failures", std::move(failures)}});
}

std::string to_json(const PreflightRound& round) {
  return line_of("measure",
                 {{"round", round.round}, {"latency", round.is_latency}, {"host", round.host}, {"port", round.port}});
}

std::string to_json(const PreflightResult& result) {
  Json message = {{"round", result.round}};
  if (result.value) message["value"] = *result.value;
  return line_of("result", std::move(message));
}

std::string to_json(const PreflightOutcome& outcome) {
  return line_of("outcome",
                 {{"exitCode", outcome.exit_code}, {"node", outcome.failed_node}, {"message", outcome.message}});
}

std::optional<PreflightJoin> preflight_join_from_json(const std::string& line) {
  const Json json = object_in(line, "join");
  if (!json.is_object()) return std::nullopt;
  PreflightJoin out{
      .node = integer_at(json, "node", -1),
      .port = integer_at(json, "port", 0),
      .host = line_at(json, "host"),
      .time = std::chrono::milliseconds(std::clamp<int64_t>(integer_at<int64_t>(json, "time", 0), 0, kMaxTime)),
      .failures = {}};
  for (const Json& failure : elements(json, "failures"))
    out.failures.push_back({line_at(failure, "check"), line_at(failure, "message")});
  return out;
}

std::optional<PreflightRound> preflight_round_from_json(const std::string& line) {
  const Json json = object_in(line, "measure");
  if (!json.is_object()) return std::nullopt;
  return PreflightRound{integer_at(json, "round", -1), true_at(json, "latency"), text_at(json, "host"),
                        integer_at(json, "port", 0)};
}

std::optional<PreflightResult> preflight_result_from_json(const std::string& line) {
  const Json json = object_in(line, "result");
  if (!json.is_object()) return std::nullopt;
  PreflightResult out{integer_at(json, "round", -1)};
  const Json& value = member(json, "value");
  if (value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0)
    out.value = value.get<double>();
  return out;
}

std::optional<PreflightOutcome> preflight_outcome_from_json(const std::string& line) {
  const Json json = object_in(line, "outcome");
  if (!json.is_object()) return std::nullopt;
  return PreflightOutcome{integer_at(json, "exitCode", to_int(ExitCode::kTempFail)), integer_at(json, "node", -1),
                          text_at(json, "message")};
}

}  // namespace oarlock::launch
