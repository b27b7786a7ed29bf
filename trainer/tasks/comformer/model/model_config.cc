#include "trainer/tasks/comformer/model/model.h"

namespace oarlock {

void describe(ComformerConfig& config, Fields& fields) {
  constexpr int64_t kMostWidth = 65536;
  fields.choice<ComformerKind>("name", config.kind,
                               {{"iComformer", ComformerKind::kInvariant}, {"eComformer", ComformerKind::kEquivariant}},
                               "lengths and angles with the lattice, or equivariant tensors");
  const bool invariant = config.kind == ComformerKind::kInvariant;
  if (!invariant && !fields.given("conv_layers")) config.conv_layers = 3;
  fields.field("conv_layers", config.conv_layers, from_to(1, 100),
               "node-wise layers: the original has 4 in iComformer (the paper's small one 3), 3 in eComformer");
  fields.field("edge_features", config.edge_features, from_to(2, kMostWidth), "Gaussians that lengths are told by");
  fields.field("triplet_input_features", config.triplet_input_features, from_to(2, kMostWidth),
               "Gaussians that angles are told by");
  fields.field("node_features", config.node_features, from_to(1, kMostWidth), "width of the layers");
  fields.field("fc_features", config.fc_features, from_to(1, kMostWidth), "width of the layer before the output");
  fields.field("output_features", config.output_features, from_to(1, kMostWidth),
               "numbers of a crystal: as many as its target_property has");
  fields.only_where("triplet_input_features", invariant, "belongs to name: iComformer");
}

}  // namespace oarlock
