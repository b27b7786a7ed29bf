// Discrete diffusion of protein sequences by score entropy (SEDD), from FASTA files.
#pragma once

#include <memory>

#include "trainer/engine/task.h"

namespace oarlock {

// The factory for the registry, name "protein_diffusion".
std::unique_ptr<Task> make_protein_diffusion(Fields& root);

}  // namespace oarlock
