// The messages between the launchers of a preflight and the one of node rank 0: lines with one JSON object each. A
// launcher sends hello_line() first (launcher_link.h). Parsers accept any text from the network, and return nothing if
// it is not such a message.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cli/launch/preflight_judgement.h"

namespace oarlock::launch {

inline constexpr size_t kMaxPreflightLine = size_t{1} << 20;  // bytes

// From a launcher, as the answer to clock_request().
struct PreflightJoin {
  int node = 0;
  int port = 0;  // on which it accepts the connections of measurements
  std::string host;
  std::chrono::milliseconds time{0};  // of its clock, since the epoch
  std::vector<CheckFailure> failures;

  bool operator==(const PreflightJoin&) const = default;
};

// To a launcher: measure one link, while all others do the same.
struct PreflightRound {
  int round = 0;
  bool is_latency = false;  // otherwise bandwidth
  std::string host;         // of the node to send to; empty: node rank 0
  int port = 0;

  bool operator==(const PreflightRound&) const = default;
};

// From a launcher: the latency of the link on which it sends, or the bandwidth of the link on which it receives.
struct PreflightResult {
  int round = 0;
  std::optional<double> value = {};  // milliseconds, or 10^6 bits in a second; absent: no connection

  bool operator==(const PreflightResult&) const = default;
};

std::string clock_request();
bool is_clock_request(const std::string& line);

std::string to_json(const PreflightJoin& join);
std::string to_json(const PreflightRound& round);
std::string to_json(const PreflightResult& result);
std::string to_json(const PreflightOutcome& outcome);

std::optional<PreflightJoin> preflight_join_from_json(const std::string& line);
std::optional<PreflightRound> preflight_round_from_json(const std::string& line);
std::optional<PreflightResult> preflight_result_from_json(const std::string& line);
std::optional<PreflightOutcome> preflight_outcome_from_json(const std::string& line);

}  // namespace oarlock::launch
