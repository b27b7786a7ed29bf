// The section "optimizer".
#pragma once

#include <array>

#include "trainer/config/fields.h"

namespace oarlock {

enum class OptimizerKind { kAdamW, kSgd };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  double weight_decay = 0.01;             // of sgd: 0
  double momentum = 0;                    // sgd
  bool nesterov = false;                  // sgd
  std::vector<double> betas{0.9, 0.999};  // adamw; two
  double eps = 1e-8;                      // adamw
};

void describe(OptimizerConfig& config, Fields& fields);

}  // namespace oarlock
