// The network of QuantumGrav against what the original computed (tests/data/causal_set_*.safetensors): names, outputs,
// gradients, buffers; and that the numbering of nodes does not matter.
#include "tests/support/paths.h"
#include "workloads/causal_set/model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/utils.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ddp/safetensors.h"
#include "tests/unit/trainer/expect_close.h"
#include "trainer/config/load.h"

namespace oarlock::causal_set {
namespace {

using Json = nlohmann::json;
using test::expect_close;

struct Golden {
  TensorMap tensors;
  Json config;

  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }
  bool has(const std::string& name) const { return tensors.contains(name); }
};

Golden golden(const std::string& name) {
  const auto file = read_safetensors(test::data_path("causal_set_") + name + ".safetensors");
  EXPECT_TRUE(file) << file.error().message;
  return {file->tensors, Json::parse(file->metadata.at("config"))};
}

template <typename T>
void take(const Json& options, const char* name, T& value) {
  if (options.contains(name)) value = options[name].get<T>();
}

ConvolutionConfig convolution_of(const Json& config) {
  static const std::map<std::string, ConvolutionKind> kKinds = {{"GCNConv", ConvolutionKind::kGcn},
                                                                {"GATConv", ConvolutionKind::kGat},
                                                                {"SAGEConv", ConvolutionKind::kSage},
                                                                {"GraphConv", ConvolutionKind::kGraphConv}};
  ConvolutionConfig out;
  out.kind = kKinds.at(config["conv"].get<std::string>());
  out.normalize = out.kind == ConvolutionKind::kGcn;
  if (out.kind == ConvolutionKind::kGraphConv) out.aggregate = Reduction::kSum;
  const Json& options = config["conv_kwargs"];
  take(options, "heads", out.heads);
  take(options, "concat", out.concat);
  take(options, "root_weight", out.root_weight);
  take(options, "add_self_loops", out.add_self_loops);
  return out;
}

LayersConfig layers_of(const Json& sizes) {
  LayersConfig out;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) out.hidden.push_back(sizes[i][1]);
  return out;
}

GnnConfig config_of(const Json& golden) {
  static const std::map<std::string, Reduction> kPoolings = {{"global_mean_pool", Reduction::kMean},
                                                             {"global_max_pool", Reduction::kMax},
                                                             {"global_add_pool", Reduction::kSum}};
  GnnConfig out;
  for (const Json& sizes : golden["dims"]) {
    out.blocks.push_back({.convolution = convolution_of(golden),
                          .out = sizes[1],
                          .skip = golden["with_skip"],
                          .dropout = golden["dropout"]});
  }
  out.pooling.clear();
  for (const Json& pooling : golden["pooling"]) out.pooling.push_back(kPoolings.at(pooling));
  for (const Json& head : golden["heads"])
    out.heads.push_back({.layers = layers_of(head), .outputs = head.back()[1], .active = true});
  if (const Json& net = golden["graph_features_net"]; !net.is_null()) {
    out.graph_features = layers_of(net);
    out.graph_features_out = net.back()[1];
  }
  return out;
}

// Returns the offsets of the groups, whose rows are sorted by group.
at::Tensor begins(const at::Tensor& group, int64_t groups) {
  const at::Tensor counts = at::bincount(group, {}, groups);
  return at::cat({at::zeros({1}, at::kLong), counts.cumsum(0)});
}

GraphEdges sorted_edges(const at::Tensor& edge_index, int64_t nodes) {
  const at::Tensor order = edge_index[1].argsort(/*stable=*/true, 0, false);
  return {edge_index[0].index_select(0, order), edge_index[1].index_select(0, order), begins(edge_index[1], nodes)};
}

GraphInput input_of(const Golden& golden) {
  const int64_t graphs = golden["labels0"].size(0);
  return {.x = golden["x"],
          .edges = sorted_edges(golden["edge_index"], golden["x"].size(0)),
          .begin = begins(golden["batch"], graphs),
          .graph_features = golden.has("graph_features") ? golden["graph_features"] : at::Tensor()};
}

int64_t width_of(const at::Tensor& features) { return features.defined() ? features.size(1) : 0; }

void set_buffers(GnnModel& model, const Golden& golden, const std::string& prefix) {
  const at::NoGradGuard no_gradients;
  for (auto& item : model.named_buffers()) item.value().copy_(golden[prefix + item.key()]);
}

class QuantumGrav : public testing::TestWithParam<const char*> {};

TEST_P(QuantumGrav, OutputsGradientsAndBuffersAreTheOriginals) {
  const Golden original = golden(GetParam());
  GraphInput input = input_of(original);
  GnnModel model(config_of(original.config), input.x.size(1), width_of(input.graph_features));
  std::vector<std::string> names;
  for (auto& item : model.named_parameters()) {
    names.push_back(item.key());
    const at::NoGradGuard no_gradients;
    item.value().copy_(original["weight." + item.key()]);
  }
  EXPECT_EQ(names, original.config["param_order"].get<std::vector<std::string>>());
  set_buffers(model, original, "buffer_before.");

  input.x = input.x.detach().clone().set_requires_grad(true);
  const std::vector<at::Tensor> outputs = model.forward(input);
  ASSERT_EQ(outputs.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const std::string name = "train_output." + std::to_string(i);
    expect_close(outputs[i], original[name], name);
  }
  const at::Tensor loss =
      at::cross_entropy_loss(outputs[0], original["labels0"]) + at::mse_loss(outputs[1], original["target1"]);
  expect_close(loss, original["loss"], "loss");
  loss.backward();
  // The gradient of a bias before a batch norm is 0 except for rounding, so it is compared at the scale of the others.
  constexpr double kMinScale = 0.2;
  for (const auto& item : model.named_parameters())
    expect_close(item.value().grad(), original["grad." + item.key()], item.key(), 1e-5, kMinScale);
  expect_close(input.x.grad(), original["grad_input.x"], "the nodes' features");
  for (const auto& item : model.named_buffers()) {
    if (item.key().ends_with("num_batches_tracked")) {
      EXPECT_EQ(item.value().item<int64_t>(), original["buffer_after." + item.key()].item<int64_t>());
    } else {
      expect_close(item.value(), original["buffer_after." + item.key()], item.key());
    }
  }

  model.eval();
  set_buffers(model, original, "buffer_after.");
  const at::NoGradGuard no_gradients;
  input.x = original["x"];
  expect_close(model.embed(input), original["eval_embeddings"], "embeddings");
  const std::vector<at::Tensor> evaluated = model.forward(input);
  for (size_t i = 0; i < 2; ++i) {
    const std::string name = "eval_output." + std::to_string(i);
    expect_close(evaluated[i], original[name], name);
  }
}

INSTANTIATE_TEST_SUITE_P(Original, QuantumGrav,
                         testing::Values("gcn", "gcn_loops", "gcn_noskip_meanpool", "gat", "gat_loops",
                                         "gat_2heads_mean", "gat_2heads_mean_loops", "sage", "sage_loops", "sage_root",
                                         "sage_root_loops", "sage_graphfeatures", "graphconv", "graphconv_loops"));

BlockConfig sage_block(int64_t out) {
  BlockConfig block;
  block.convolution.kind = ConvolutionKind::kSage;
  block.convolution.normalize = false;
  block.convolution.root_weight = false;
  block.out = out;
  return block;
}

TEST(GnnModel, NamesAndShapesOfTheFullSizeAreTheOriginals) {
  const Json expected = Json::parse(std::ifstream(test::data_path("causal_set_parameters.json")));
  GnnConfig config;
  for (const int64_t out : {128, 256, 128}) config.blocks.push_back(sage_block(out));
  config.heads.push_back({.layers = {.hidden = {48, 18}}, .outputs = 2});
  const GnnModel model(config, 12, 0);
  const auto check = [](const auto& items, const Json& list) {
    ASSERT_EQ(items.size(), list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(items[i].key(), list[i]["name"].get<std::string>());
      EXPECT_EQ(items[i].value().sizes().vec(), list[i]["shape"].get<std::vector<int64_t>>()) << items[i].key();
    }
  };
  check(model.named_parameters(), expected["parameters"]);
  check(model.named_buffers(), expected["buffers"]);
  int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  EXPECT_EQ(count, 142'792);
}

// The same graphs with their nodes numbered otherwise.
TEST(GnnModel, TheNumberingOfNodesDoesNotMatter) {
  for (const char* name : {"gcn_loops", "gat_2heads_mean", "sage_root", "graphconv"}) {
    const Golden original = golden(name);
    torch::manual_seed(3);
    GnnModel model(config_of(original.config), original["x"].size(1), 0);
    model.eval();
    const at::NoGradGuard no_gradients;
    const GraphInput input = input_of(original);
    const at::Tensor& begin = input.begin;
    std::vector<at::Tensor> orders;  // of the nodes of each graph
    for (int64_t g = 0; g + 1 < begin.size(0); ++g) {
      const auto first = begin[g].item<int64_t>();
      orders.push_back(at::randperm(begin[g + 1].item<int64_t>() - first, at::kLong) + first);
    }
    const at::Tensor order = at::cat(orders);  // node i was node order[i]
    const at::Tensor renumbered = order.argsort().index_select(0, original["edge_index"].flatten()).view({2, -1});
    GraphInput other = input;
    other.x = input.x.index_select(0, order);
    other.edges = sorted_edges(renumbered, input.x.size(0));
    ASSERT_FALSE(other.x.equal(input.x));
    const auto outputs = model.forward(input);
    const auto others = model.forward(other);
    for (size_t i = 0; i < outputs.size(); ++i) expect_close(others[i], outputs[i], name, 1e-5);
  }
}

TEST(GnnModel, AnInactiveHeadGivesNothingAndLearnsNothing) {
  const Golden original = golden("gcn");
  GnnConfig config = config_of(original.config);
  config.heads[1].active = false;
  GnnModel model(config, original["x"].size(1), 0);
  const auto outputs = model.forward(input_of(original));
  EXPECT_TRUE(outputs[0].defined());
  EXPECT_FALSE(outputs[1].defined());
  for (const auto& item : model.named_parameters())
    EXPECT_EQ(item.value().requires_grad(), !item.key().starts_with("downstream_tasks.1")) << item.key();
}

TEST(CausalSetMetrics, HaveTheDeclaredNames) {
  const at::Tensor outputs = at::ones({4, 2});
  for (const LossKind kind :
       {LossKind::kCrossEntropy, LossKind::kMse, LossKind::kL1, LossKind::kSmoothL1, LossKind::kBce}) {
    for (const std::string name : {"", "size"}) {
      MetricSums totals = {{"count", 4}};
      const at::Tensor targets = kind == LossKind::kCrossEntropy ? at::ones({4, 1}) : at::ones({4, 2});
      add_sums(name, kind, at::ones({4}), name.empty() ? at::Tensor() : outputs, targets, totals);
      Metrics metrics;
      add_metrics(name, kind, totals, metrics);
      std::vector<std::string> names;
      for (const auto& [key, value] : metrics) names.push_back(key);
      EXPECT_THAT(metric_names(name, kind), testing::UnorderedElementsAreArray(names));
    }
  }
}

TaskNames names_of_causal_set() {
  return {{"causal_set"}, [](const std::string&, Fields& root) {
            CausalSetModelConfig model;
            root.section("model", [&](Fields& fields) { describe(model, fields); }, "the network");
          }};
}

TEST(CausalSetConfig, PrintedConvolutionReadsBack) {
  const TaskNames tasks = names_of_causal_set();
  for (const char* block : {"conv: gcn", "conv: gcn, normalize: false", "conv: gat", "conv: sage", "conv: graphconv"}) {
    const std::string text = fmt::format("task: causal_set\nsteps: 1\nmodel: {{blocks: [{{{}}}]}}\n", block);
    const auto printed = print_parsed_config(text, "f.yaml", tasks);
    ASSERT_TRUE(printed) << printed.error().message;
    EXPECT_EQ(print_parsed_config(*printed, "printed.yaml", tasks).value_or(""), *printed) << block;
  }
}

TEST(CausalSetConfig, NoHeadsAreAProblem) {
  const auto printed = print_parsed_config("task: causal_set\nsteps: 1\nmodel: {blocks: [{conv: gat, heads: 0}]}\n",
                                           "f.yaml", names_of_causal_set());
  ASSERT_FALSE(printed);
  EXPECT_THAT(printed.error().message, ::testing::HasSubstr("model.blocks[0].heads: 0 is not in [1, "));
}

TEST(GnnModel, ConcatenatedHeadsMakeUpTheWidth) {
  ConvolutionConfig config;
  config.kind = ConvolutionKind::kGat;
  config.heads = 3;
  const auto convolution = make_convolution(config, 4, 6);
  EXPECT_EQ(convolution->named_parameters()["att_src"].sizes(), (at::IntArrayRef{1, 3, 2}));
  const GraphEdges edges = sorted_edges(at::stack({at::arange(4), at::arange(4).flip(0)}), 4);
  EXPECT_EQ(convolution->forward(at::randn({4, 4}), edges).sizes(), (at::IntArrayRef{4, 6}));
}

}  // namespace
}  // namespace oarlock::causal_set
