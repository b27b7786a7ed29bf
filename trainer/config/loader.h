// The section "loader": how batches are made ahead of time.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

struct LoaderConfig {
  int threads = 1;   // 0: batches are made by the training thread
  int prefetch = 2;  // batches per thread
};

void describe(LoaderConfig& config, Fields& fields);

}  // namespace oarlock
