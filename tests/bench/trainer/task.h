// A task for timing: random samples and labels that lie in memory, one of the models, and a record of when each step
// began. All else is the engine as users run it.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::bench {

// data:  samples; record: file of rank 0 with what was measured, as JSON; empty: none
// model: name (small | mlp | cnn | resnet_like | resnet | sedd)
std::unique_ptr<Task> make_bench_task(Fields& root);

}  // namespace oarlock::bench
