// The configuration of the task causal_set: its sections "data", "model" and "testing".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fields/fields.h"
#include "workloads/formats/zarr/array.h"

namespace oarlock::causal_set {

enum class EdgeKind {
  kLinks,      // relations without an element between their ends: the transitive reduction
  kRelations,  // all relations
};

// The axis of the samples in the arrays of a store.
enum class AxisOrder {
  kAuto,         // detected from the shape of the matrices
  kSampleFirst,  // [samples, elements, elements], as written by Python
  kReversed,     // the reverse order, as Julia's column-major arrays appear to row-major readers
};

struct SplitConfig {
  double train = 0.8;
  double validation = 0.1;  // the rest is the test set
  int64_t seed = 42;
};

// The section "data".
struct CausalSetDataConfig {
  std::vector<std::string> paths;
  EdgeKind edges = EdgeKind::kLinks;
  std::vector<std::string> node_features{"in_degree", "out_degree", "max_pathlen_future", "max_pathlen_past"};
  std::vector<std::string> graph_features;
  AxisOrder axes = AxisOrder::kAuto;
  zarr::MissingChunks missing_chunks = zarr::MissingChunks::kFill;
  std::string cache;
  SplitConfig split;
};

// Whether a node feature is computed if a store does not contain it.
bool is_computed_feature(const std::string& name);

// The target array of one head of the network.
struct TargetSpec {
  std::string array;            // shape [samples] or [samples, width]
  int64_t width = 1;            // numbers per sample
  std::vector<double> classes;  // the permitted values, which become their indices in this list; empty: any value
};

enum class ConvolutionKind { kGcn, kGat, kSage, kGraphConv };
enum class Reduction { kMean, kMax, kSum };

struct ConvolutionConfig {
  ConvolutionKind kind = ConvolutionKind::kGcn;
  bool bias = true;
  bool add_self_loops = true;              // gcn, gat: one self-loop per node, replacing existing ones
  bool normalize = true;                   // gcn: by the degrees; sage: output rows to length 1
  Reduction aggregate = Reduction::kMean;  // sage, graphconv
  bool root_weight = true;                 // sage: a weight for the node itself
  bool project = false;                    // sage: a linear layer before the aggregation
  int64_t heads = 1;                       // gat
  bool concat = true;                      // gat: concatenates the heads; otherwise their mean
  double negative_slope = 0.2;             // gat
  double attention_dropout = 0;            // gat
};

enum class Normalizer { kBatchNorm, kNone };
enum class Activation { kRelu, kElu, kGelu, kSilu, kTanh, kIdentity };

struct BlockConfig {
  ConvolutionConfig convolution;
  int64_t out = 128;
  Normalizer normalizer = Normalizer::kBatchNorm;
  Activation activation = Activation::kRelu;
  bool skip = true;  // adds the input of the block, through a linear layer if the widths differ
  double dropout = 0.3;
};

// Linear layers with an activation between them; none after the last layer.
struct LayersConfig {
  std::vector<int64_t> hidden;
  Activation activation = Activation::kRelu;
};

struct HeadConfig {
  LayersConfig layers;
  int64_t outputs = 2;
  bool active = true;  // an inactive head keeps its weights, but is neither evaluated nor trained
};

struct GnnConfig {
  std::vector<BlockConfig> blocks;
  std::vector<Reduction> pooling{Reduction::kMean};
  LayersConfig graph_features;     // used if the data have graph features
  int64_t graph_features_out = 0;  // 0: graph features are used without a network
  std::vector<HeadConfig> heads;
};

enum class LossKind {
  kCrossEntropy,  // classes, from logits
  kMse,
  kL1,
  kSmoothL1,  // torch.nn.SmoothL1Loss with beta 1
  kBce,       // one binary target per output, from logits
};

// One head of the network and its target.
struct GraphTaskConfig {
  std::string name;
  std::string target;  // the array; empty: the one with the name of the task
  LossKind loss = LossKind::kCrossEntropy;
  std::vector<double> classes;
  double weight = 1;  // of this loss in the sum
  HeadConfig head;

  TargetSpec target_spec() const;
};

// The section "model". The default is the network of QuantumGrav's documentation.
struct CausalSetModelConfig {
  GnnConfig network;
  std::vector<GraphTaskConfig> tasks;

  CausalSetModelConfig();
  // Returns the targets of the active tasks in their order.
  std::vector<TargetSpec> targets() const;
};

// The section "testing".
struct TestingConfig {
  int64_t batch_size = 64;
  std::string predictions;  // CSV file; empty: none
};

void describe(CausalSetDataConfig& config, Fields& fields);
// Also sets network.heads to the heads of the tasks.
void describe(CausalSetModelConfig& config, Fields& fields);
void describe(TestingConfig& config, Fields& fields);

}  // namespace oarlock::causal_set
