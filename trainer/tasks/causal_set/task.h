// Graph networks on causal sets, as QuantumGrav trains them, from zarr stores and HDF5 files.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock {

// The factory for the registry, name "causal_set".
std::unique_ptr<Task> make_causal_set(Fields& root);

}  // namespace oarlock
