// The section "data" of the task causal_set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/fields.h"
#include "trainer/data/zarr/array.h"

namespace oarlock {

enum class EdgeKind {
  kLinks,      // relations with nothing between their ends
  kRelations,  // all
};

// Which axis of the arrays is that of the samples.
enum class AxisOrder {
  kAuto,         // told by the shape of the matrices
  kSampleFirst,  // [samples, elements, elements], as Python writes them
  kReversed,     // the opposite order, as Julia's column-major arrays look to others
};

struct SplitConfig {
  double train = 0.8;
  double validation = 0.1;  // the rest is for the test
  int64_t seed = 42;
};

struct CausalSetDataConfig {
  std::vector<std::string> paths;
  EdgeKind edges = EdgeKind::kLinks;
  std::vector<std::string> node_features{"in_degree", "out_degree", "max_pathlen_future", "max_pathlen_past"};
  std::vector<std::string> graph_features;
  AxisOrder axes = AxisOrder::kAuto;
  zarr::MissingChunks missing_chunks = zarr::MissingChunks::kError;
  std::string cache;
  SplitConfig split;
};

void describe(CausalSetDataConfig& config, Fields& fields);

// What the data must hold for one head of the network.
struct TargetSpec {
  std::string array;            // [samples], or [samples, width]
  int64_t width = 1;            // numbers of a sample
  std::vector<double> classes;  // the values that there may be, which become their places in this list; empty: any
};

// The names of node features that are computed where a store does not have them.
bool is_computed_feature(const std::string& name);

}  // namespace oarlock
