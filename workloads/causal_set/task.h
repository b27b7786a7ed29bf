// Graph networks on causal sets, as trained by QuantumGrav, from zarr stores and HDF5 files.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::causal_set {

// Creates the task and reads its sections of the configuration. An invalid value is a problem of `root`.
std::unique_ptr<Task> make_task(Fields& root);

}  // namespace oarlock::causal_set
