#include "workloads/causal_set/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "trainer/config/limits.h"

namespace oarlock::causal_set {
namespace {

constexpr double kMaxWidth = 65536;
constexpr std::array<std::string_view, 4> kComputedFeatures = {"in_degree", "out_degree", "max_pathlen_future",
                                                               "max_pathlen_past"};

const Names<Activation> kActivations = {{"relu", Activation::kRelu}, {"elu", Activation::kElu},
                                        {"gelu", Activation::kGelu}, {"silu", Activation::kSilu},
                                        {"tanh", Activation::kTanh}, {"identity", Activation::kIdentity}};
const Names<Reduction> kReductions = {{"mean", Reduction::kMean}, {"max", Reduction::kMax}, {"sum", Reduction::kSum}};

void describe(SplitConfig& config, Fields& fields) {
  fields.field("train", config.train, above_to(0, 1), "share of the samples for training");
  fields.field("validation", config.validation, above_to(0, 1),
               "share of the samples for validation; the rest is the test set");
  fields.field("seed", config.seed, at_least(0), "seed of the permutation of the samples; the same on all ranks");
  if (config.train + config.validation > 1 + 1e-9)
    fields.problem("validation", "train and validation are more than all samples");
}

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
  if (!fields.has("normalize") && sage) config.normalize = false;
  if (!fields.has("aggregate") && kind == Kind::kGraphConv) config.aggregate = Reduction::kSum;
  fields.field("bias", config.bias, "add a bias");
  fields.field("normalize", config.normalize,
               "gcn: normalize by the degrees of both nodes (default true); sage: normalize output rows to length 1 "
               "(default false)");
  fields.only_if("normalize", gcn || sage, "belongs to the convolutions gcn and sage");
  if (gcn && !config.normalize && !fields.has("add_self_loops")) config.add_self_loops = false;
  fields.field(
      "add_self_loops", config.add_self_loops,
      "gcn, gat: add an edge from each node to itself; default: false for gcn without normalize, otherwise true");
  fields.only_if("add_self_loops", gcn || gat, "belongs to the convolutions gcn and gat");
  if (gcn && !config.normalize && config.add_self_loops)
    fields.problem("add_self_loops", "needs normalize: true in a gcn, as in torch_geometric");
  fields.choice<Reduction>(
      "aggregate", config.aggregate, kReductions,
      "sage, graphconv: reduction over the neighbors of a node; default: mean for sage, sum for graphconv");
  fields.only_if("aggregate", sage || kind == Kind::kGraphConv, "belongs to the convolutions sage and graphconv");
  fields.field("root_weight", config.root_weight, "sage: add a linear layer of the node's own features");
  fields.field("project", config.project, "sage: apply a linear layer and a ReLU before the aggregation");
  for (const char* key : {"root_weight", "project"}) fields.only_if(key, sage, "belongs to the convolution sage");
  fields.field("heads", config.heads, from_to(1, 1024), "gat: attention heads");
  fields.field("concat", config.concat, "gat: concatenate the heads to the width `out`; false: average them");
  fields.field("negative_slope", config.negative_slope, at_least(0), "gat: slope of the leaky ReLU of the attention");
  fields.field("attention_dropout", config.attention_dropout, from_below(0, 1),
               "gat: dropout probability of the attention weights");
  for (const char* key : {"heads", "concat", "negative_slope", "attention_dropout"})
    fields.only_if(key, gat, "belongs to the convolution gat");
}

void describe(BlockConfig& config, Fields& fields) {
  describe(config.convolution, fields);
  fields.field("out", config.out, from_to(1, kMaxWidth), "output features of the block");
  fields.choice<Normalizer>("norm", config.normalizer,
                            {{"batch_norm", Normalizer::kBatchNorm}, {"none", Normalizer::kNone}},
                            "normalization after the convolution");
  fields.choice<Activation>("activation", config.activation, kActivations, "activation after the normalization");
  fields.field("skip", config.skip, "add the block's input, through a linear layer without bias if the widths differ");
  fields.field("dropout", config.dropout, from_below(0, 1), "dropout probability at the end of the block");
  const ConvolutionConfig& convolution = config.convolution;
  const bool is_divided = convolution.kind == ConvolutionKind::kGat && convolution.concat && convolution.heads > 0;
  if (is_divided && config.out % convolution.heads != 0)
    fields.problem("out",
                   fmt::format("{} is not a multiple of heads ({}), which are concatenated; or set concat: false",
                               config.out, convolution.heads));
}

// A list in the file replaces the default completely: its items have the defaults of BlockConfig.
void describe_blocks(std::vector<BlockConfig>& blocks, Fields& fields) {
  std::vector<BlockConfig> given;
  fields.list<BlockConfig>(
      "blocks", given, [](BlockConfig& block, Fields& inner) { describe(block, inner); },
      "blocks in sequence, each of convolution, normalization, activation, skip connection and dropout; empty: three "
      "of "
      "sage (mean, root_weight false) to 128, 256 and 128 features, as in QuantumGrav's documentation");
  if (!given.empty()) blocks = std::move(given);
}

void describe_poolings(std::vector<Reduction>& poolings, Fields& fields) {
  std::vector<std::string> names;
  for (const Reduction pooling : poolings) {
    for (const auto& [name, kind] : kReductions)
      if (kind == pooling) names.emplace_back(name);
  }
  fields.field("pooling", names, "reduction over the nodes of a graph: mean, max, sum, or several, concatenated");
  poolings.clear();
  for (const std::string& name : names) {
    const size_t before = poolings.size();
    for (const auto& [known_name, kind] : kReductions)
      if (name == known_name) poolings.push_back(kind);
    if (poolings.size() == before) fields.problem("pooling", fmt::format("'{}' is none of mean, max and sum", name));
  }
  if (names.empty()) fields.problem("pooling", "at least one is needed");
}

void describe(GraphTaskConfig& config, Fields& fields) {
  fields.field("name", config.name, "prefix of its metrics, NAME_loss, NAME_accuracy ...");
  fields.field("target", config.target, "array with the targets; empty: the one with the task's name");
  fields.choice<LossKind>("loss", config.loss,
                          {{"cross_entropy", LossKind::kCrossEntropy},
                           {"mse", LossKind::kMse},
                           {"l1", LossKind::kL1},
                           {"smooth_l1", LossKind::kSmoothL1},
                           {"bce_with_logits", LossKind::kBce}},
                          "PyTorch's loss function of that name; cross_entropy: the outputs are classes");
  fields.field("outputs", config.head.outputs, from_to(1, kMaxWidth),
               "cross_entropy: number of classes; other losses: number of values per target");
  fields.field("classes", config.classes, any_number(),
               "cross_entropy: value of the target for each class; empty: 0 .. outputs - 1");
  fields.only_if("classes", config.loss == LossKind::kCrossEntropy, "belongs to the loss cross_entropy");
  fields.field("hidden", config.head.layers.hidden, from_to(1, kMaxWidth),
               "widths of the layers between the pooled features and the outputs");
  fields.choice<Activation>("activation", config.head.layers.activation, kActivations,
                            "activation between these layers");
  fields.field("weight", config.weight, at_least(0), "weight of this loss in the sum of all losses");
  fields.field("active", config.head.active, "false: keep the weights of the head, but neither train nor evaluate it");
  if (config.name.empty()) fields.problem("name", "is required");
  if (!config.classes.empty() && static_cast<int64_t>(config.classes.size()) != config.head.outputs)
    fields.problem("classes", fmt::format("{} classes, but {} outputs", config.classes.size(), config.head.outputs));
}

void describe_tasks(std::vector<GraphTaskConfig>& tasks, Fields& fields) {
  std::vector<GraphTaskConfig> given;
  fields.list<GraphTaskConfig>(
      "tasks", given, [](GraphTaskConfig& task, Fields& inner) { describe(task, inner); },
      "learning targets, each with its own head; empty: manifold_like with two classes and hidden [48, 18]");
  if (!given.empty()) tasks = std::move(given);
  std::set<std::string> names;
  bool active = false;
  for (const GraphTaskConfig& task : tasks) {
    active = active || task.head.active;
    if (!names.insert(task.name).second) fields.problem("tasks", fmt::format("'{}' occurs twice", task.name));
  }
  if (!active) fields.problem("tasks", "at least one must be active");
}

BlockConfig default_block(int64_t out) {
  BlockConfig block;
  block.convolution.kind = ConvolutionKind::kSage;
  block.convolution.normalize = false;
  block.convolution.root_weight = false;
  block.out = out;
  return block;
}

}  // namespace

bool is_computed_feature(const std::string& name) {
  return std::find(kComputedFeatures.begin(), kComputedFeatures.end(), name) != kComputedFeatures.end();
}

TargetSpec GraphTaskConfig::target_spec() const {
  TargetSpec spec{.array = target.empty() ? name : target, .width = head.outputs, .classes = classes};
  if (loss != LossKind::kCrossEntropy) return spec;
  spec.width = 1;
  for (int64_t c = 0; classes.empty() && c < head.outputs; ++c) spec.classes.push_back(static_cast<double>(c));
  return spec;
}

CausalSetModelConfig::CausalSetModelConfig() {
  for (const int64_t out : {128, 256, 128}) network.blocks.push_back(default_block(out));
  GraphTaskConfig task;
  task.name = "manifold_like";
  task.head.layers.hidden = {48, 18};
  tasks.push_back(task);
}

std::vector<TargetSpec> CausalSetModelConfig::targets() const {
  std::vector<TargetSpec> out;
  for (const GraphTaskConfig& task : tasks)
    if (task.head.active) out.push_back(task.target_spec());
  return out;
}

void describe(CausalSetDataConfig& config, Fields& fields) {
  fields.require("paths");
  fields.field("paths", config.paths, "zarr stores (directories) and HDF5 files, which are concatenated");
  fields.choice<EdgeKind>("edges", config.edges, {{"links", EdgeKind::kLinks}, {"relations", EdgeKind::kRelations}},
                          "links: read from link_matrix, or computed from adjacency_matrix if link_matrix does not "
                          "exist; relations: read from adjacency_matrix");
  fields.field("node_features", config.node_features,
               "names of arrays [samples, elements]; in_degree, out_degree, max_pathlen_future and max_pathlen_past "
               "are computed if a store does not contain them");
  fields.field("graph_features", config.graph_features, "names of arrays [samples] or [samples, features]");
  fields.choice<AxisOrder>(
      "axes", config.axes,
      {{"auto", AxisOrder::kAuto}, {"sample_first", AxisOrder::kSampleFirst}, {"reversed", AxisOrder::kReversed}},
      "reversed: samples are the last axis, as in arrays written by Julia; auto: detected from the shape");
  fields.choice<zarr::MissingChunks>(
      "missing_chunks", config.missing_chunks,
      {{"fill", zarr::MissingChunks::kFill}, {"error", zarr::MissingChunks::kError}},
      "reaction to a zarr chunk without a file; fill: use the fill value, as writers omit chunks that contain only it; "
      "error: for stores whose writer omits none");
  fields.field("cache", config.cache, "directory of the converted graphs; empty: next to the first store");
  for (const char* key : {"paths", "cache"}) fields.scope(key, Scope::kRank);
  fields.section(
      "split", [&](Fields& inner) { describe(config.split, inner); }, "split into training, validation and test set");
  if (config.node_features.empty()) fields.problem("node_features", "at least one is needed");
}

void describe(CausalSetModelConfig& config, Fields& fields) {
  describe_blocks(config.network.blocks, fields);
  describe_poolings(config.network.pooling, fields);
  fields.section(
      "graph_features",
      [&](Fields& inner) {
        inner.field("hidden", config.network.graph_features.hidden, from_to(1, kMaxWidth), "widths of hidden layers");
        inner.choice<Activation>("activation", config.network.graph_features.activation, kActivations,
                                 "activation between the layers");
        inner.field("out", config.network.graph_features_out, from_to(0, kMaxWidth),
                    "output width; 0: use data.graph_features without a network");
      },
      "a small network for data.graph_features");
  describe_tasks(config.tasks, fields);
  config.network.heads.clear();
  for (const GraphTaskConfig& task : config.tasks) config.network.heads.push_back(task.head);
}

void describe(TestingConfig& config, Fields& fields) {
  fields.field("batch_size", config.batch_size, from_to(1, kMaxBatchSize), "causal sets per batch and rank");
  fields.field("predictions", config.predictions, "CSV of the best model's predictions on the test set; empty: none");
  fields.scope("predictions", Scope::kRank);
}

}  // namespace oarlock::causal_set
