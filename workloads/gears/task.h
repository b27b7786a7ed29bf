// Expression of cells after perturbations of their genes (GEARS), from AnnData files.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::gears {

// Creates the task and reads its sections of the configuration. An invalid value is a problem of `root`.
std::unique_ptr<Task> make_task(Fields& root);

}  // namespace oarlock::gears
