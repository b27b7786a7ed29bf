// The benchmark task: random samples and labels in memory, one of the models, and a record of the start of each step.
// Everything else is the production engine.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::bench {

// data:  samples; record: file for the measurements of rank 0, as JSON; empty for none
// model: name (small | mlp | cnn | resnet_like | resnet | sedd)
std::unique_ptr<Task> make_bench_task(Fields& root);

}  // namespace oarlock::bench
