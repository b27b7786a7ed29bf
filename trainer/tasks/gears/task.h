// What cells express after genes of them were perturbed (GEARS), from AnnData files.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock {

// The factory for the registry, name "gears".
std::unique_ptr<Task> make_gears(Fields& root);

}  // namespace oarlock
