// The section "pretrained": weights that a run begins with instead of random ones.
#pragma once

#include <string>

#include "trainer/config/fields.h"

namespace oarlock {

struct PretrainedConfig {
  std::string path;    // a safetensors file; empty: none
  bool strict = true;  // names and shapes must be exactly the model's
};

void describe(PretrainedConfig& config, Fields& fields);

}  // namespace oarlock
