// Discrete diffusion of protein sequences by score entropy (SEDD), from FASTA files.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock::protein_diffusion {

// Creates the task and reads its sections of the configuration. An invalid value is a problem of `root`.
std::unique_ptr<Task> make_task(Fields& root);

}  // namespace oarlock::protein_diffusion
