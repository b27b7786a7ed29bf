// Properties of crystals by iComFormer or eComFormer.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::comformer {

// The factory of the task "comformer".
std::unique_ptr<Task> make_task(Fields& root);

}  // namespace oarlock::comformer
