#include "trainer/tasks/causal_set/data_config.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace oarlock {
namespace {

constexpr std::array<std::string_view, 4> kComputed = {"in_degree", "out_degree", "max_pathlen_future",
                                                       "max_pathlen_past"};

void describe(SplitConfig& config, Fields& fields) {
  fields.field("train", config.train, above_to(0, 1), "share of the samples to train with");
  fields.field("validation", config.validation, above_to(0, 1), "share to evaluate with; the rest is for the test");
  fields.field("seed", config.seed, at_least(0), "of the permutation that is cut; the same on every rank");
  if (config.train + config.validation > 1 + 1e-9)
    fields.problem("validation", "train and validation are more than all samples");
}

}  // namespace

void describe(CausalSetDataConfig& config, Fields& fields) {
  fields.require("paths");
  fields.field("paths", config.paths, "zarr stores (folders) and HDF5 files, one after the other");
  fields.choice<EdgeKind>(
      "edges", config.edges, {{"links", EdgeKind::kLinks}, {"relations", EdgeKind::kRelations}},
      "links: of link_matrix, or computed from adjacency_matrix where there is none; relations: of adjacency_matrix");
  fields.field(
      "node_features", config.node_features,
      "arrays [samples, elements]; in_degree, out_degree, max_pathlen_future and max_pathlen_past are computed "
      "where a store does not have them");
  fields.field("graph_features", config.graph_features, "arrays [samples] or [samples, features]");
  fields.choice<AxisOrder>(
      "axes", config.axes,
      {{"auto", AxisOrder::kAuto}, {"sample_first", AxisOrder::kSampleFirst}, {"reversed", AxisOrder::kReversed}},
      "reversed: samples are the last axis, as of arrays that Julia wrote; auto: told by the shape");
  fields.choice<zarr::MissingChunks>(
      "missing_chunks", config.missing_chunks,
      {{"error", zarr::MissingChunks::kError}, {"fill", zarr::MissingChunks::kFill}},
      "what a zarr chunk without a file means; fill: the fill value, as where its writer leaves out empty chunks");
  fields.field("cache", config.cache, "folder of the converted graphs; empty: beside the first store");
  fields.section("split", [&](Fields& inner) { describe(config.split, inner); }, "training, validation and test");
  if (config.node_features.empty()) fields.problem("node_features", "at least one is needed");
}

bool is_computed_feature(const std::string& name) {
  return std::find(kComputed.begin(), kComputed.end(), name) != kComputed.end();
}

}  // namespace oarlock
