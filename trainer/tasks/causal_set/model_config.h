// The sections "model" and "testing" of the task causal_set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/fields.h"
#include "trainer/tasks/causal_set/data_config.h"
#include "trainer/tasks/causal_set/gnn/model.h"
#include "trainer/tasks/causal_set/graph_losses.h"

namespace oarlock {

// What one head of the network learns.
struct GraphTaskConfig {
  std::string name;
  std::string target;  // the array; empty: the name
  LossKind loss = LossKind::kCrossEntropy;
  std::vector<double> classes;
  double weight = 1;  // of its loss in the sum
  HeadConfig head;

  TargetSpec target_spec() const;
};

struct CausalSetModelConfig {
  GnnConfig network;
  std::vector<GraphTaskConfig> tasks;

  CausalSetModelConfig();
  // Of the active tasks, in their order.
  std::vector<TargetSpec> targets() const;
};

// Leaves network.heads as the tasks want them.
void describe(CausalSetModelConfig& config, Fields& fields);

struct TestingConfig {
  int64_t batch_size = 64;
  std::string predictions;
};

void describe(TestingConfig& config, Fields& fields);

}  // namespace oarlock
