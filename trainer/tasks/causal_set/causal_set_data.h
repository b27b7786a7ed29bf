// The data of the task causal_set: stores converted to graphs once, and cut into training, validation and test.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/dataset.h"
#include "trainer/data/graph_collation.h"
#include "trainer/tasks/causal_set/data_config.h"

namespace oarlock {

// Some of the graphs. Batches are GraphCollation's ("x", "edge_index", "edge_ptr", "batch", "ptr", "targets",
// "graph_features" where there are any), and "sample" int64 [graphs]: their numbers in the stores, one store after the
// other.
class CausalSets final : public Dataset {
 public:
  CausalSets(std::shared_ptr<const GraphCollation> graphs, std::vector<int64_t> samples)
      : graphs_(std::move(graphs)), samples_(std::move(samples)) {}

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;

  const std::vector<int64_t>& samples() const { return samples_; }
  const GraphCollation& graphs() const { return *graphs_; }  // of all samples

 private:
  std::shared_ptr<const GraphCollation> graphs_;
  std::vector<int64_t> samples_;
};

struct CausalSetSplits {
  CausalSets train;
  CausalSets validation;
  CausalSets test;
};

// Converts the stores unless that was done before; for Task::prepare_data(). The conversion is FIRST.oarlock/HASH,
// where the hash is of the stores' files and of what decides about the content. `targets`: the arrays of the heads.
// kNoInput, kDataErr with file, array and sample; kCantCreate.
Result<void> prepare_causal_sets(const CausalSetDataConfig& config, std::span<const TargetSpec> targets,
                                 const Logger& log);

// What prepare_causal_sets() made, memory-mapped; for Task::prepare(). kDataErr where a part has no sample.
Result<CausalSetSplits> open_causal_sets(const CausalSetDataConfig& config, std::span<const TargetSpec> targets);

// Which samples are whose: torch.randperm of the seed, cut as torch.utils.data.random_split cuts it, the sizes being
// floor(share * samples) and the rest. Depends on nothing else, so that every rank has the same.
struct SplitIndices {
  std::vector<int64_t> train;
  std::vector<int64_t> validation;
  std::vector<int64_t> test;
};
SplitIndices split_samples(int64_t samples, const SplitConfig& config);

}  // namespace oarlock
