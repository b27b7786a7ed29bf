// How gradients will be averaged, as far as it is not in the configuration: a run that goes on must have it, for the
// bits to be those of a run that nobody disturbed. docs/checkpoint-format.md has the JSON.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/ddp.h"

namespace oarlock {

// What a reducer has learned from the steps before. Sums over three and more ranks depend in their last bits on where a
// gradient lies in its bucket, and so do PowerSGD's factors.
struct LearnedReduction {
  std::vector<std::vector<size_t>> buckets;  // of parameters, in the order in which buckets are reduced
  bool rebuilt = false;                      // in the order in which gradients become ready, for good
  // Of a static graph, by parameter, on this rank; empty where it is still to be learned.
  std::vector<int64_t> uses;  // in one backward pass
  std::vector<int64_t> used;  // 0: no rank uses it
};

struct ReductionState {
  nlohmann::json values;                      // the same on all ranks; null: nothing
  std::map<std::string, at::Tensor> tensors;  // on rank 0, of all ranks
};

inline constexpr char kPowerSgdValues[] = "powersgd";  // in the values

// `names` are those of the parameters that are trained. `learned` is of each rank, and differs between them at most in
// `uses` and `used`.
nlohmann::json reduction_values(const std::vector<LearnedReduction>& learned, const std::vector<std::string>& names,
                                const DdpConfig& config);

// What `rank` had learned, where the run goes on with as many ranks, the same parameters and the same way of forming
// buckets; else nothing.
std::optional<LearnedReduction> learned_from(const nlohmann::json& values, const std::vector<std::string>& names,
                                             const DdpConfig& config, int rank, int world_size);

}  // namespace oarlock
