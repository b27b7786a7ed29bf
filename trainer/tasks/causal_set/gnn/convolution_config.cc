#include "trainer/tasks/causal_set/gnn/convolution.h"

namespace oarlock {

void describe(ConvolutionConfig& config, Fields& fields) {
  using Kind = ConvolutionKind;
  fields.choice<Kind>(
      "conv", config.kind,
      {{"gcn", Kind::kGcn}, {"gat", Kind::kGat}, {"sage", Kind::kSage}, {"graphconv", Kind::kGraphConv}},
      "torch_geometric's GCNConv, GATConv, SAGEConv or GraphConv");
  const Kind kind = config.kind;
  const bool gcn = kind == Kind::kGcn;
  const bool gat = kind == Kind::kGat;
  const bool sage = kind == Kind::kSage;
  if (!fields.given("normalize") && sage) config.normalize = false;
  if (!fields.given("aggregate") && kind == Kind::kGraphConv) config.aggregate = Reduction::kSum;
  fields.field("bias", config.bias, "whether there is an additive bias");
  fields.field("add_self_loops", config.add_self_loops, "gcn, gat: an edge from each node to itself");
  fields.only_where("add_self_loops", gcn || gat, "belongs to the convolutions gcn and gat");
  fields.field("normalize", config.normalize,
               "gcn: by the degrees of both nodes (default true); sage: output rows to length 1 (default false)");
  fields.only_where("normalize", gcn || sage, "belongs to the convolutions gcn and sage");
  if (gcn && !config.normalize && !fields.given("add_self_loops")) config.add_self_loops = false;
  if (gcn && !config.normalize && config.add_self_loops)
    fields.problem("add_self_loops", "needs normalize: true in a gcn, as in torch_geometric");
  fields.choice<Reduction>(
      "aggregate", config.aggregate, {{"mean", Reduction::kMean}, {"max", Reduction::kMax}, {"sum", Reduction::kSum}},
      "sage, graphconv: how the nodes that point to a node become one; sage: mean, graphconv: sum");
  fields.only_where("aggregate", sage || kind == Kind::kGraphConv, "belongs to the convolutions sage and graphconv");
  fields.field("root_weight", config.root_weight, "sage: whether the node itself has a weight, too");
  fields.field("project", config.project, "sage: a linear layer and a ReLU before the aggregation");
  for (const char* key : {"root_weight", "project"}) fields.only_where(key, sage, "belongs to the convolution sage");
  fields.field("heads", config.heads, from_to(1, 1024), "gat: attention heads");
  fields.field("concat", config.concat, "gat: heads beside each other, which make up `out`; false: their mean");
  fields.field("negative_slope", config.negative_slope, at_least(0), "gat: of the leaky ReLU of attention");
  fields.field("attention_dropout", config.attention_dropout, from_below(0, 1), "gat: of the weights of attention");
  for (const char* key : {"heads", "concat", "negative_slope", "attention_dropout"})
    fields.only_where(key, gat, "belongs to the convolution gat");
}

}  // namespace oarlock
