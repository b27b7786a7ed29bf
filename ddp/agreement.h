// The values that must be equal on all ranks of a run: settings, program version, and fingerprints of the data. They
// are compared when a group of ranks forms, when a rank joins it, and when a run is resumed from a checkpoint. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock {

// Values for people by key: "optimizer.lr" -> "0.002".
using AgreedValues = std::map<std::string, std::string>;

inline constexpr char kVersionKey[] = "version";  // of the program
inline constexpr char kRevisionKey[] = "revision";

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

}  // namespace oarlock
