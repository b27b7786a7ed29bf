// Reads the causal sets of a store one after the other: zero-padded matrices become lists of relations.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workloads/causal_set/array_store.h"
#include "workloads/causal_set/causal_relations.h"
#include "workloads/causal_set/config.h"

namespace oarlock::causal_set {

struct CausalSample {
  int64_t size = 0;                   // elements
  std::vector<Relation> edges;        // sorted by their later and then their earlier end
  std::vector<float> node_features;   // [size, features]
  std::vector<float> graph_features;  // [features]
  std::vector<double> targets;        // [targets]; the index of a class
};

// Total widths of the arrays that a sample's graph features and targets consist of.
struct SampleWidths {
  int64_t graph_features = 0;
  int64_t targets = 0;

  bool operator==(const SampleWidths&) const = default;
};

class SampleReader {
 public:
  // Opens the arrays that the configuration and `targets` name. Fails with kDataErr if one of them does not exist (the
  // message lists the existing ones), or if their shapes are inconsistent.
  static Result<SampleReader> open(const ArrayStore& store, const CausalSetDataConfig& config,
                                   std::span<const TargetSpec> targets);

  int64_t size() const { return samples_; }
  const SampleWidths& widths() const { return widths_; }

  // Returns a sample. Indices should be ascending, because samples are read in blocks of a fixed amount of memory.
  // Fails with kDataErr, naming file, array and sample, if an element is out of range, there is a cycle or NaN, or the
  // file is damaged.
  Result<CausalSample> sample(int64_t index);

 private:
  // An array with the samples on its first axis, or, in stores written by Julia, on its last axis.
  struct Column {
    std::unique_ptr<StoredArray> array;
    bool reversed = false;
    std::vector<double> values{};  // of the current block
    int64_t row_size = 1;          // elements per sample

    Result<void> read(int64_t first, int64_t count);
    // Returns element (i, j) of a sample's matrix, or element i of its row. `block` is the number of samples in the
    // block.
    double at(int64_t sample, int64_t block, int64_t i, int64_t j = 0) const;
    int64_t length(size_t axis) const;  // with the samples as the first axis
  };

  SampleReader(const CausalSetDataConfig& config, std::string store) : config_(config), store_(std::move(store)) {}

  Result<void> open_columns(const ArrayStore& store, std::span<const TargetSpec> targets);
  Result<Column> open_column(const ArrayStore& store, const std::string& name, size_t min_axes, size_t max_axes);
  Result<void> choose_axes(const ArrayStore& store, const std::string& matrix);
  Result<void> read_sample_count(const ArrayStore& store);
  Result<void> read_block(int64_t first);
  Result<CausalSample> make(int64_t in_block);
  Result<int64_t> size_of(int64_t in_block) const;
  Result<std::vector<Relation>> relations_of(int64_t in_block, int64_t size) const;
  Result<void> add_node_features(const CausalRelations& relations, std::span<const int64_t> order, int64_t in_block,
                                 CausalSample& sample) const;
  Result<void> add_targets(int64_t in_block, CausalSample& sample) const;
  tl::unexpected<Error> sample_error(const Column& column, int64_t in_block, const std::string& what) const;

  CausalSetDataConfig config_;
  std::string store_;
  bool reversed_ = false;
  bool reduce_ = false;  // links are computed from all relations
  int64_t samples_ = 0;
  int64_t elements_ = 0;  // the matrices are elements_ x elements_
  int64_t block_ = 1;     // samples per block
  int64_t block_first_ = 0;
  int64_t block_size_ = 0;
  SampleWidths widths_;
  Column matrix_;
  std::optional<Column> sizes_;
  std::vector<std::optional<Column>> node_features_;  // nullopt: computed
  std::vector<Column> graph_features_;
  std::vector<Column> targets_;
  std::vector<TargetSpec> target_specs_;
};

}  // namespace oarlock::causal_set
