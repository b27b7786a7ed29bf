// The datasets of the task causal_set: stores that are converted to graphs once, split into training, validation and
// test set.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/cache_directory.h"
#include "trainer/data/dataset.h"
#include "trainer/data/fingerprint.h"
#include "trainer/data/graph_collation.h"
#include "workloads/causal_set/config.h"

namespace oarlock::causal_set {

// A subset of the graphs. Batches are those of GraphCollation ("x", "edge_index", "edge_ptr", "batch", "ptr",
// "targets", and "graph_features" if the data have any) with "sample", int64 [graphs]: the index of each graph in the
// concatenation of all stores.
class CausalSets final : public Dataset {
 public:
  CausalSets(std::shared_ptr<const GraphCollation> graphs, std::vector<int64_t> samples)
      : graphs_(std::move(graphs)), samples_(std::move(samples)) {}

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override;
  std::string fingerprint() const override { return sampled_fingerprint(*this); }

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
  std::shared_ptr<const CacheEntry> entry;  // of their graphs
};

// Converts the stores unless that is done, as open_cache_entry() does in FIRST_STORE.oarlock. For Task::prepare_data().
// `targets` lists the arrays of the active heads. Fails with kNoInput, kCantCreate, or kDataErr naming file, array and
// sample.
Result<void> prepare_causal_sets(const CausalSetDataConfig& config, std::span<const TargetSpec> targets,
                                 const Logger& log);

// Maps the graphs that prepare_causal_sets() created into memory, or creates them. For Task::prepare(). Fails with
// kDataErr if the training or the validation set is empty, and otherwise as prepare_causal_sets().
Result<CausalSetSplits> open_causal_sets(const CausalSetDataConfig& config, std::span<const TargetSpec> targets,
                                         const Logger& log = Logger::silent());

struct SplitIndices {
  std::vector<int64_t> train;
  std::vector<int64_t> validation;
  std::vector<int64_t> test;
};

// Splits torch.randperm(samples) of the seed as torch.utils.data.random_split does, into floor(share * samples) for
// training and validation and the rest for the test. The result is the same on all ranks.
SplitIndices split_samples(int64_t samples, const SplitConfig& config);

}  // namespace oarlock::causal_set
