#include "trainer/tasks/causal_set/model_config.h"

#include <fmt/format.h>

#include <set>

namespace oarlock {
namespace {

constexpr double kMaxWidth = 65536;

const Names<Activation> kActivations = {{"relu", Activation::kRelu}, {"elu", Activation::kElu},
                                        {"gelu", Activation::kGelu}, {"silu", Activation::kSilu},
                                        {"tanh", Activation::kTanh}, {"identity", Activation::kIdentity}};

void describe(GraphTaskConfig& config, Fields& fields) {
  fields.field("name", config.name, "of its metrics, NAME_loss, NAME_accuracy ...");
  fields.field("target", config.target, "array of what is to be learned; empty: the one with the task's name");
  fields.choice<LossKind>("loss", config.loss,
                          {{"cross_entropy", LossKind::kCrossEntropy},
                           {"mse", LossKind::kMse},
                           {"l1", LossKind::kL1},
                           {"smooth_l1", LossKind::kSmoothL1},
                           {"bce_with_logits", LossKind::kBce}},
                          "PyTorch's function of that name; cross_entropy: the outputs are classes");
  fields.field("outputs", config.head.outputs, from_to(1, kMaxWidth), "classes, or numbers of the target");
  fields.field("classes", config.classes, any_number(),
               "cross_entropy: the target's value of each class; empty: 0 .. outputs - 1");
  fields.only_where("classes", config.loss == LossKind::kCrossEntropy, "belongs to the loss cross_entropy");
  fields.field("hidden", config.head.layers.hidden, from_to(1, kMaxWidth), "widths between pooled graph and outputs");
  fields.choice<Activation>("activation", config.head.layers.activation, kActivations, "between these");
  fields.field("weight", config.weight, at_least(0), "of this loss in the sum of all");
  fields.field("active", config.head.active, "false: it keeps its weights, gives nothing and learns nothing");
  if (config.name.empty()) fields.problem("name", "is required");
  if (!config.classes.empty() && static_cast<int64_t>(config.classes.size()) != config.head.outputs)
    fields.problem("classes", fmt::format("{} classes, but {} outputs", config.classes.size(), config.head.outputs));
}

void describe_poolings(std::vector<Reduction>& poolings, Fields& fields) {
  const Names<Reduction> known = {{"mean", Reduction::kMean}, {"max", Reduction::kMax}, {"sum", Reduction::kSum}};
  std::vector<std::string> names;
  for (const Reduction pooling : poolings) {
    for (const auto& [name, kind] : known)
      if (kind == pooling) names.emplace_back(name);
  }
  fields.field("pooling", names, "how the nodes of a graph become one: mean, max, sum, or several beside each other");
  poolings.clear();
  for (const std::string& name : names) {
    const size_t before = poolings.size();
    for (const auto& [known_name, kind] : known)
      if (name == known_name) poolings.push_back(kind);
    if (poolings.size() == before) fields.problem("pooling", fmt::format("'{}' is none of mean, max and sum", name));
  }
  if (names.empty()) fields.problem("pooling", "at least one is needed");
}

// The list replaces the default as a whole: an item of the file has the defaults of BlockConfig, not of that network.
void describe_blocks(std::vector<BlockConfig>& blocks, Fields& fields) {
  std::vector<BlockConfig> given;
  fields.list<BlockConfig>(
      "blocks", given, [](BlockConfig& block, Fields& inner) { describe(block, inner); },
      "one after the other: convolution, normalisation, activation, skip connection, dropout; empty: three of sage "
      "(mean, root_weight false) to 128, 256 and 128 features, as in QuantumGrav's documentation");
  if (!given.empty()) blocks = std::move(given);
}

void describe_tasks(std::vector<GraphTaskConfig>& tasks, Fields& fields) {
  std::vector<GraphTaskConfig> given;
  fields.list<GraphTaskConfig>(
      "tasks", given, [](GraphTaskConfig& task, Fields& inner) { describe(task, inner); },
      "what is learned, each by a head of its own; empty: manifold_like in two classes, hidden [48, 18]");
  if (!given.empty()) tasks = std::move(given);
  std::set<std::string> names;
  bool active = false;
  for (const GraphTaskConfig& task : tasks) {
    active = active || task.head.active;
    if (!names.insert(task.name).second) fields.problem("tasks", fmt::format("'{}' is there twice", task.name));
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

TargetSpec GraphTaskConfig::target_spec() const {
  TargetSpec spec{.array = target.empty() ? name : target, .width = head.outputs, .classes = classes};
  if (loss != LossKind::kCrossEntropy) return spec;
  spec.width = 1;
  for (int64_t c = 0; classes.empty() && c < head.outputs; ++c) spec.classes.push_back(static_cast<double>(c));
  return spec;
}

// The network of QuantumGrav's documentation.
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

void describe(CausalSetModelConfig& config, Fields& fields) {
  describe_blocks(config.network.blocks, fields);
  describe_poolings(config.network.pooling, fields);
  fields.section(
      "graph_features",
      [&](Fields& inner) {
        inner.field("hidden", config.network.graph_features.hidden, from_to(1, kMaxWidth), "widths between");
        inner.choice<Activation>("activation", config.network.graph_features.activation, kActivations, "between these");
        inner.field("out", config.network.graph_features_out, from_to(0, kMaxWidth),
                    "width beside the pooled nodes; 0: data.graph_features as they are");
      },
      "a small network for data.graph_features");
  describe_tasks(config.tasks, fields);
  config.network.heads.clear();
  for (const GraphTaskConfig& task : config.tasks) config.network.heads.push_back(task.head);
}

void describe(TestingConfig& config, Fields& fields) {
  fields.field("batch_size", config.batch_size, at_least(1), "causal sets of a rank at a time");
  fields.field("predictions", config.predictions, "CSV of what the best model says about the test set; empty: none");
}

}  // namespace oarlock
