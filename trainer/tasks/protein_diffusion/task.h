// Discrete diffusion of protein sequences by score entropy (SEDD), from FASTA files.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::protein_diffusion {

// The factory of the task "protein_diffusion".
std::unique_ptr<Task> make_task(Fields& root);

}  // namespace oarlock::protein_diffusion
