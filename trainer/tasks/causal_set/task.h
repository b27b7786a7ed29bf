// Graph networks on causal sets, as trained by QuantumGrav, from zarr stores and HDF5 files.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::causal_set {

// The factory of the task "causal_set".
std::unique_ptr<Task> make_task(Fields& root);

}  // namespace oarlock::causal_set
