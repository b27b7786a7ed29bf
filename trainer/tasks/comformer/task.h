// Properties of crystals by iComFormer or eComFormer.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock {

// The factory for the registry, name "comformer".
std::unique_ptr<Task> make_comformer_task(Fields& root);

}  // namespace oarlock
