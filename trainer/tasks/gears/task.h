// Expression of cells after perturbations of their genes (GEARS), from AnnData files.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::gears {

// The factory of the task "gears".
std::unique_ptr<Task> make_task(Fields& root);

}  // namespace oarlock::gears
