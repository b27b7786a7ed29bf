// The values that must be equal on all ranks of a run: settings, program version, and fingerprints of the data. They
// are compared when a group of ranks forms, when a rank joins it, and when a run is resumed from a checkpoint. Pure.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "fields/writer.h"

namespace oarlock {

// Values for people by key: "optimizer.lr" -> "0.002".
using AgreedValues = std::map<std::string, std::string>;

inline constexpr char kVersionKey[] = "version";  // of the program
inline constexpr char kRevisionKey[] = "revision";

// Returns the values of a printed configuration that must be equal, according to the scopes of its fields. A list of
// numbers or strings is one value. The value of a field with Scope::kPresence is "set" or "not set".
AgreedValues agreed_settings(const nlohmann::ordered_json& printed, const FieldScopes& scopes);

// The value of a field with Scope::kPresence.
std::string presence(const std::string& value);

struct ValueDifference {
  std::string key;
  std::optional<std::string> here;  // nullopt: there is no such value
  std::optional<std::string> there;

  bool operator==(const ValueDifference&) const = default;
};

// Returns every difference in the order of the keys, those that explain others first: the program's version, the task,
// and the numbers of samples. Values that only one side has come last, because they often follow from another value:
// with another optimizer.name, the optimizer has other keys.
std::vector<ValueDifference> differences(const AgreedValues& here, const AgreedValues& there);

// What the compared values are.
enum class AgreedKind { kSettings, kData };

// Fails if the values of a rank differ from those of rank 0: with kConfig for settings, with kDataErr for data. The
// message names the key of the first difference, and both values.
Result<void> check_agreement(AgreedKind kind, int rank, const AgreedValues& values, const AgreedValues& of_rank_0);

// Returns what has changed between an earlier run and this one, "optimizer.lr: 0.002 -> 0.02; steps: 100 -> 200", for
// people; "" if nothing has.
std::string changes(const AgreedValues& before, const AgreedValues& now);

// Conversion to a JSON object of strings and back. Members of other types are ignored.
nlohmann::json to_json_object(const AgreedValues& values);
AgreedValues agreed_values_from_json(const nlohmann::json& object);

}  // namespace oarlock
