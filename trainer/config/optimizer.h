// The section "optimizer", with the names of torch.optim.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class OptimizerKind { kAdamW, kAdam, kSgd };

// Parameters that are known by their shape rather than by their name. no_decay: those of at most one dimension, which
// are biases and the weights of normalisations.
enum class GroupPreset { kNone, kNoDecay };

// Parameters that are updated differently. A parameter belongs to the first group that it fits, else to the rest.
struct ParameterGroupConfig {
  std::string match;  // regular expression (ECMAScript), searched for in the name; this or a preset
  GroupPreset preset = GroupPreset::kNone;
  std::optional<double> lr;            // instead of optimizer.lr
  double lr_scale = 1;                 // times the group's lr
  std::optional<double> weight_decay;  // instead of optimizer.weight_decay; 0 for the preset no_decay
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  std::optional<double> weight_decay;     // none: default_weight_decay()
  double momentum = 0;                    // sgd
  double dampening = 0;                   // sgd
  bool nesterov = false;                  // sgd
  std::vector<double> betas{0.9, 0.999};  // adam, adamw; two
  double eps = 1e-8;                      // adam, adamw
  bool amsgrad = false;                   // adam, adamw
  bool maximize = false;
  std::vector<ParameterGroupConfig> groups;
};

// PyTorch's: 0.01 for adamw, else 0.
double default_weight_decay(OptimizerKind kind);

void describe(OptimizerConfig& config, Fields& fields);

}  // namespace oarlock
